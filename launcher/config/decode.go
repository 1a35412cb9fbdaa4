package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"go.yaml.in/yaml/v4"
)

// A position is the line and the column of a key in the file.
type position struct{ line, column int }

// A decoder reads YAML nodes into structs by reflection. It does not use the decoder of the YAML
// package, because errors, including those of the checker, must state the position of every key.
// The decoder continues after an error.
type decoder struct {
	file    string
	lines   map[string]position // the position of each key in the file
	errs    Errors
	wrong   map[string]bool // the keys for which an error has been reported
	lenient bool            // leave out a value with a variable that is not set, and report no error; used to find state_dir
	unset   bool            // a value was left out because the field lenient is set
	nodes   int             // number of visited nodes; the target of an alias is counted each time that the alias is used
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, lines: map[string]position{}, wrong: map[string]bool{}}
}

// maxNodes is the largest number of values in a file. An alias of YAML counts with all the values
// that it stands for, because aliases of aliases can expand a small file without limit.
const maxNodes = 100_000

// index returns the key of an element of a list.
func index(key string, k int) string { return fmt.Sprintf("%s[%d]", key, k) }

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// set reports whether the file has the key.
func (d *decoder) set(key string) bool {
	_, ok := d.lines[key]
	return ok
}

// fail reports an error at the key. If the file does not have the key, the position is that of the
// enclosing key.
func (d *decoder) fail(key, format string, args ...any) {
	d.add(d.position(key), key, fmt.Sprintf(format, args...))
}

// position returns the position of the key, or of the innermost enclosing key that the file has.
func (d *decoder) position(key string) position {
	for {
		if p, ok := d.lines[key]; ok || key == "" {
			return p
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
}

// failAt reports an error at the position of a YAML node.
func (d *decoder) failAt(n *yaml.Node, key, format string, args ...any) {
	d.add(position{n.Line, n.Column}, key, fmt.Sprintf(format, args...))
}

// add records an error and continues, so that a user sees all mistakes of a file at once. The key
// is marked as wrong: later checks skip it, because they would report the same mistake again.
func (d *decoder) add(at position, key, rule string) {
	d.errs = append(d.errs, &Error{d.file, at.line, at.column, key, rule})
	d.wrong[key] = true
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
	portType     = reflect.TypeFor[launcher.Port]()
	rlimitType   = reflect.TypeFor[rlimit]()
)

// value reads a node into v, the field of the struct that belongs to a key.
//
// If the map forms has an entry for the key, the function in that entry reads the node. Otherwise
// the kind of the field decides how it is read.
func (d *decoder) value(n *yaml.Node, at string, k *setting, v reflect.Value) {
	if f, ok := forms[k.form]; ok {
		d.formed(n, at, f, v)
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, at, k, v.Elem())
		return
	}
	if n = d.follow(n, at); n == nil {
		return
	}
	if n.ShortTag() == "!!null" && (v.Kind() == reflect.Struct || v.Kind() == reflect.Slice || v.Kind() == reflect.Map) {
		return // the key has no value, for example because all lines below it are commented out
	}
	switch v.Kind() {
	case reflect.Struct:
		if r, ok := v.Addr().Interface().(*launcher.RestartConfig); ok && n.Kind == yaml.ScalarNode { // this is the short form of a restart policy, as in restart_policy: never
			d.value(n, at, &setting{}, reflect.ValueOf(&r.Policy).Elem())
			d.wrong[join(at, "policy")] = d.wrong[at]
			return
		}
		d.mapping(n, at, k.keys, v)
	case reflect.Slice:
		d.list(n, at, v)
	case reflect.Map:
		d.stringMap(n, at, v)
	default:
		d.leaf(n, at, k.form, v)
	}
}

// leaf reads a node into v, which is neither a mapping nor a list.
//
// Variables are expanded here, so keys cannot contain any. If lenient is set, a value with a
// variable that is not set is left out without an error, except in state_dir, which is what the
// caller is looking for.
func (d *decoder) leaf(n *yaml.Node, at, form string, v reflect.Value) {
	if n.Kind != yaml.ScalarNode {
		d.failAt(n, at, "must be %s, not %s", expected(v, form), kindOf(n))
		return
	}
	n, rule := d.expand(n, v)
	if rule != "" && d.lenient && at != "state_dir" {
		d.unset = true
		return
	}
	if rule == "" {
		rule = d.scalar(n, v, form)
	}
	if rule != "" {
		d.failAt(n, at, "%s", rule)
	}
}

// follow returns the target of an alias. It returns nil if the file has too many values.
func (d *decoder) follow(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.failAt(n, key, "the file has more than %d values at this point, with its aliases expanded", maxNodes)
		}
		return nil
	}
	return n
}

// list reads a sequence into a slice. Each element begins with the defaults of its type, and its
// position is recorded under its index, for errors of rules that are checked later.
func (d *decoder) list(n *yaml.Node, key string, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.failAt(n, key, "must be a list, not %s", kindOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for k, e := range n.Content {
		at := index(key, k)
		d.lines[at] = position{e.Line, e.Column}
		prepare(v.Index(k).Addr().Interface())
		d.value(e, at, &setting{keys: elements[v.Type().Elem()]}, v.Index(k))
		// If an element is wrong, the list counts as wrong, too: a rule for the whole list would
		// report the same mistake again.
		d.wrong[key] = d.wrong[key] || d.wrong[at]
	}
}

// stringMap reads a mapping whose keys are names that the user chooses, such as environment
// variables.
func (d *decoder) stringMap(n *yaml.Node, key string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.failAt(n, key, "must be a mapping of names to strings, not %s", kindOf(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(n, key, func(name, value *yaml.Node, at string) {
		s := reflect.New(v.Type().Elem()).Elem()
		d.value(value, at, &setting{}, s)
		v.SetMapIndex(reflect.ValueOf(name.Value), s)
	})
}

// mapping decodes n, a mapping, into the struct v. It reports keys that are not in keys.
func (d *decoder) mapping(n *yaml.Node, at string, keys []*setting, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.failAt(n, at, "must be a mapping, not %s", kindOf(n))
		return
	}
	d.pairs(n, at, func(name, value *yaml.Node, at string) {
		i := slices.IndexFunc(keys, func(k *setting) bool { return k.name == name.Value })
		if i < 0 {
			d.failAt(name, at, "unknown key%s", nearest(name.Value, keys))
			return
		}
		if g, ok := v.Addr().Interface().(*Group); ok && name.Value == dependsOn && d.isMapping(value) {
			d.dependencies(value, at, g)
			return
		}
		d.value(value, at, keys[i], keys[i].fieldOf(v))
	})
}

const dependsOn = "depends_on"

// isMapping reports whether a node is a mapping, or an alias of one.
func (d *decoder) isMapping(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode || n.Kind == yaml.AliasNode && n.Alias.Kind == yaml.MappingNode
}

// dependencies reads a mapping of groups to conditions.
func (d *decoder) dependencies(n *yaml.Node, key string, g *Group) {
	if n = d.follow(n, key); n == nil {
		return
	}
	d.pairs(n, key, func(name, value *yaml.Node, at string) {
		n := index(key, len(g.DependsOn))
		d.lines[n] = d.lines[at]
		g.DependsOn = append(g.DependsOn, name.Value)
		var c launcher.Condition
		d.value(value, at, &setting{}, reflect.ValueOf(&c).Elem())
		switch {
		// To package launcher, an empty condition means healthy. In a file an empty condition is an
		// error, which is reported here.
		case !slices.Contains(spec.Choices(c), string(c)) && !d.unset && !d.wrong[at]:
			d.fail(at, "must be started, healthy or completed, not %q", c)
		case c != launcher.IsHealthy:
			if g.Conditions == nil {
				g.Conditions = map[string]launcher.Condition{}
			}
			g.Conditions[name.Value] = c
		}
		d.wrong[n] = d.wrong[at]
	})
}

// pairs calls f with each key of a mapping and the value of the key. It begins with the keys of the
// mapping itself. Then follow the keys of the mappings that it merges (<<), except for keys that it
// has itself.
func (d *decoder) pairs(n *yaml.Node, key string, f func(name, value *yaml.Node, at string)) {
	seen := map[string]*yaml.Node{}
	within := map[*yaml.Node]bool{}
	var visit func(n *yaml.Node, merged bool)
	visit = func(n *yaml.Node, merged bool) {
		if within[n] {
			d.failAt(n, key, "merges itself (<<)")
			return
		}
		within[n] = true
		defer delete(within, n)
		for k := 0; k+1 < len(n.Content); k += 2 {
			name, value := n.Content[k], n.Content[k+1]
			if name.ShortTag() == "!!merge" {
				continue
			}
			if name.Kind != yaml.ScalarNode || name.ShortTag() == "!!null" {
				d.failAt(name, key, "has a key that is %s; a key must be a name", kindOf(name))
				continue
			}
			at := join(key, name.Value)
			if first := seen[name.Value]; first != nil {
				if !merged {
					d.failAt(name, at, "is set twice, first in line %d", first.Line)
				}
				continue
			}
			seen[name.Value] = name
			d.lines[at] = position{name.Line, name.Column}
			f(name, value, at)
		}
		for k := 0; k+1 < len(n.Content); k += 2 {
			if n.Content[k].ShortTag() != "!!merge" {
				continue
			}
			for _, m := range d.merged(n.Content[k+1], key) {
				if m = d.follow(m, key); m == nil {
					return
				}
				if m.Kind != yaml.MappingNode {
					d.failAt(n.Content[k], key, "merges (<<) %s; only mappings can be merged", kindOf(m))
					continue
				}
				visit(m, true)
			}
		}
	}
	visit(n, false)
}

// merged returns the nodes to which the value n of a merge key (<<) refers: n itself, or the
// elements of n if it is a list.
func (d *decoder) merged(n *yaml.Node, key string) []*yaml.Node {
	switch n = d.follow(n, key); {
	case n == nil:
		return nil
	case n.Kind == yaml.SequenceNode:
		return n.Content
	}
	return []*yaml.Node{n}
}

// scalar reads a value into v, or returns what is wrong with it.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, form string) (rule string) {
	tag := n.ShortTag()
	switch {
	case v.Type() == durationType:
		return d.duration(n, v, form == "seconds")
	case v.Type() == bytesType:
		b, err := parseBytes(n.Value)
		if err != nil {
			return err.Error()
		}
		v.SetInt(int64(b))
	case v.Kind() == reflect.Int:
		return d.whole(n, v)
	case (v.Type() == portType || v.Type() == rlimitType) && tag == "!!int": // a number or a text, such as {port}
		v.SetString(n.Value)
	case v.Kind() == reflect.Bool && form != "":
		return choose(n, v, form)
	case v.Kind() == reflect.Float64, v.Kind() == reflect.Bool:
		return d.plain(n, v)
	case tag != "!!str":
		if tag == "!!null" {
			return "has no value; leave the key out, or write \"\""
		}
		return fmt.Sprintf("must be a string, not %s; put it in quotes", kindOf(n)) // the message does not show the value, which may be a secret
	default:
		if strings.ContainsRune(n.Value, 0) {
			return "has a NUL byte"
		}
		v.SetString(n.Value)
	}
	return ""
}

// expected describes the values that v accepts.
func expected(v reflect.Value, form string) string {
	switch {
	case v.Kind() == reflect.Bool && form != "":
		return strings.ReplaceAll(form, "|", " or ")
	case v.Type() == durationType:
		return "a duration with its unit (ms, s, m or h), such as 500ms or 1m30s"
	case v.Type() == bytesType:
		return "a size, such as 64KiB"
	case v.Kind() == reflect.Int:
		return "a whole number"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Float64:
		return "a number, such as 0.5"
	}
	return "a string"
}

// kindOf describes a node without its value: a secret may have been written in the wrong line.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!null":
		return "an empty value"
	case "!!bool":
		return "a boolean"
	case "!!int":
		return "a number"
	case "!!float":
		return kindOfFloat(strings.ToLower(n.Value))
	case "!!timestamp":
		return "a date"
	case "!!str":
		return "a string"
	}
	return "a " + n.ShortTag()
}
