package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A form says how the file writes the value of a field if the type of the field does not say it:
// Env, for instance, is a []string in Go, but a mapping in the file.
type form struct {
	typ reflect.Type                            // type of the value in the file
	get func(field reflect.Value) reflect.Value // converts the value of the field to the value for the file
	set func(field, value reflect.Value)        // sets the field to the value from the file

	// check returns what is wrong with a name in a mapping, or with the value of that name, or "".
	// If check is nil, names and values are not checked.
	check func(name, value string) (rule string)
}

// formOf returns the form of a field of type F whose value in the file has the type V. get returns
// the value for the file; set returns the new value of the field.
func formOf[F, V any](get func(F) V, set func(F, V) F) form {
	return form{
		typ: reflect.TypeFor[V](),
		get: func(f reflect.Value) reflect.Value { return reflect.ValueOf(get(f.Interface().(F))) },
		set: func(f, v reflect.Value) { f.Set(reflect.ValueOf(set(f.Interface().(F), v.Interface().(V)))) },
	}
}

var forms = map[string]form{
	"bytes": {
		typ: bytesType,
		get: func(f reflect.Value) reflect.Value { return reflect.ValueOf(Bytes(f.Int())) },
		set: func(f, v reflect.Value) { f.SetInt(v.Int()) },
	},
	// In the file, max_files is the number of all log files. In the configuration, the field has
	// the number of old log files, which is one less. The limit keeps the subtraction from
	// overflowing.
	"files": formOf(func(rotated int) int { return rotated + 1 }, func(_, all int) int { return max(all, -math.MaxInt) - 1 }),
	"command": formOf(func(c []string) string { program, _ := programOf(c); return program }, func(c []string, program string) []string {
		_, args := programOf(c)
		return commandOf(program, args)
	}),
	"args": formOf(func(c []string) []string { _, args := programOf(c); return args }, func(c []string, args []string) []string {
		program, _ := programOf(c)
		return commandOf(program, args)
	}),
	"env": formOf(variables, func(_ []string, all map[string]string) []string { return environment(all) }).checked(func(name, _ string) string {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return "the name of a variable cannot be empty, or contain = or NUL"
		case isReserved(name):
			return "is reserved: the launcher sets it for the process"
		}
		return ""
	}),
	"rlimits": formOf(rlimitTexts, rlimits).checked(func(name, text string) string {
		if !slices.Contains(spec.RlimitNames, name) {
			return "is not the name of a limit; the names are " + strings.Join(spec.RlimitNames, ", ")
		}
		_, _, rule := rlimit(text).parse()
		return rule
	}),
}

func (f form) checked(check func(name, value string) string) form {
	f.check = check
	return f
}

// formed reads a node into v, a field that has another form in the file. formed converts the
// present value of v into that form, reads the node over it, and converts the result back. If the
// node is not valid, v keeps its value. The keys command and args share a field: each sets its
// part.
func (d *decoder) formed(n *yaml.Node, at string, f form, v reflect.Value) {
	in := reflect.New(f.typ).Elem()
	in.Set(f.get(v))
	d.value(n, at, &setting{}, in)
	f.set(v, in)
	if f.check == nil {
		return
	}
	for _, name := range sortedKeys(in) {
		if rule := f.check(name, in.MapIndex(reflect.ValueOf(name)).String()); rule != "" && !d.wrong[join(at, name)] {
			d.fail(join(at, name), "%s", rule)
		}
	}
}

// fileForm returns the value of the field v in the form in which the file has it: a field that
// counts bytes, for example, is text with a unit in the file.
func (k *setting) fileForm(v reflect.Value) reflect.Value {
	switch f, ok := forms[k.form]; {
	case ok:
		return f.get(v)
	case v.Kind() == reflect.Bool && k.form != "":
		unset, set, _ := strings.Cut(k.form, "|")
		return reflect.ValueOf(map[bool]string{false: unset, true: set}[v.Bool()])
	}
	return reflect.Indirect(v)
}

// programOf returns the parts of a command, which are the values of the keys command and args. The
// program is empty as long as only args has been read.
func programOf(command []string) (program string, args []string) {
	if len(command) == 0 {
		return "", nil
	}
	return command[0], command[1:]
}

// commandOf returns the command with these parts. An empty program without arguments is no command,
// so that command: ${CHECK:-} can turn a check of canaries off.
func commandOf(program string, args []string) []string {
	if program == "" && len(args) == 0 {
		return nil
	}
	return append([]string{program}, args...)
}

// choose reads a field that is one of two words in the file, such as "first|second" in form, and a
// bool in v. It sets v to false for the first word and to true for the second one. For any other
// value, it returns the rule that the value breaks.
func choose(n *yaml.Node, v reflect.Value, form string) (rule string) {
	words := strings.Split(form, "|")
	switch {
	case n.ShortTag() == "!!null":
		return fmt.Sprintf("must be %s, not %s", expected(v, form), kindOf(n))
	case !slices.Contains(words, n.Value):
		return fmt.Sprintf("must be %s, not %q", expected(v, form), n.Value)
	}
	v.SetBool(n.Value == words[1])
	return ""
}

// variables returns a list of NAME=value as a map. If a name occurs twice, the last one counts.
func variables(env []string) map[string]string {
	all := map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		all[name] = value
	}
	return all
}

// environment returns the variables as a list of NAME=value, sorted, so that a configuration that
// has not changed is equal to the earlier one.
func environment(all map[string]string) (env []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}

// A rlimit is a soft and a hard limit, as in 1024:4096, or one number for both. A limit can be
// unlimited.
type rlimit string

// rlimitTexts returns the limits as a file has them, by name. It is the inverse of rlimits.
func rlimitTexts(all []spec.Rlimit) map[string]rlimit {
	texts := map[string]rlimit{}
	for _, r := range all {
		text := limitText(r.Hard)
		if r.Soft != r.Hard {
			text = limitText(r.Soft) + ":" + text
		}
		texts[r.Name] = rlimit(text)
	}
	return texts
}

const unlimited = "unlimited"

func limitText(n uint64) string {
	if n == spec.Unlimited {
		return unlimited
	}
	return strconv.FormatUint(n, 10)
}

// parseLimit reads one limit. A negative number is refused, although -1 means unlimited in other
// programs.
func parseLimit(text string) (n uint64, ok bool) {
	if text == unlimited {
		return spec.Unlimited, true
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// rlimits returns the limits in the order of their names. Texts that are wrong are left out.
func rlimits(_ []spec.Rlimit, texts map[string]rlimit) (all []spec.Rlimit) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if soft, hard, rule := texts[name].parse(); rule == "" {
			all = append(all, spec.Rlimit{Name: name, Soft: soft, Hard: hard})
		}
	}
	return all
}

// parse returns the limits, or what is wrong with them.
func (r rlimit) parse() (soft, hard uint64, rule string) {
	first, second, both := strings.Cut(string(r), ":")
	if !both {
		second = first
	}
	soft, ok := parseLimit(first)
	hard, ok2 := parseLimit(second)
	switch {
	case !ok || !ok2:
		return 0, 0, fmt.Sprintf("must be soft:hard or one number for both, such as 1024:4096, 65536 or unlimited, not %q", string(r))
	case soft > hard:
		return 0, 0, fmt.Sprintf("the soft limit is more than the hard limit: %s", string(r))
	}
	return soft, hard, ""
}
