package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/launcher"
)

// Effect says what a reload does because of a change.
type Effect string

const (
	AtOnce   Effect = "at once"                // the new value is used at once
	Starts   Effect = "starts the group"       // the group is new
	Stops    Effect = "stops the group"        // the group was removed
	Scales   Effect = "starts or stops some"   // the other instances are not affected
	Rolls    Effect = "rolls the group"        // all instances are replaced
	Restarts Effect = "with the next launcher" // a reload is refused; only the next launcher uses the value
)

var effects = map[string]Effect{"now": AtOnce, "scale": Scales, "roll": Rolls, "launcher": Restarts}

// A Change is a key whose value differs between two configurations. Secrets are masked
// in Old and New, so the two are equal if only a secret has changed.
type Change struct {
	Group    string // empty if the change does not concern a group
	Key      string // for example shutdown.max_duration; empty if the whole group was added or removed
	Old, New string // empty if there is no value
	Effect   Effect
}

func (c Change) String() string {
	at := c.Key
	if c.Group != "" {
		at = strings.TrimSuffix(c.Group+": "+c.Key, ": ")
	}
	switch {
	case c.Effect == Starts, c.Effect == Restarts && c.Key == "":
		return fmt.Sprintf("+ %s (%s)", at, c.Effect)
	case c.Effect == Stops:
		return fmt.Sprintf("- %s (%s)", at, c.Effect)
	}
	old, new := c.Old, c.New
	if old == new {
		new += ", changed" // both values are masked secrets, so their texts are equal
	}
	return fmt.Sprintf("~ %s: %s → %s (%s)", at, dash(old), dash(new), c.Effect)
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// Diff returns the changes from now to next: first those of the launcher, then those of each group,
// in the order of the keys. Groups are matched by name; their order does not matter.
func Diff(now, next *Config) []Change {
	a, b := flatten(now, *now), flatten(next, *next)
	for c, all := range map[*Config]leaves{now: a, next: b} {
		if l := all.at["total_deadline"]; c.TotalDeadline == c.derivedTotal() {
			l.seen += " by default"
			all.at["total_deadline"] = l
		}
	}
	var all []Change
	compare := func(group string, old, new leaves) {
		for _, key := range old.keysWith(new) {
			o, n := old.at[key], new.at[key]
			if o.raw != n.raw {
				effect := max(o.effect, n.effect)
				if g := next.Group(group); key == "on_launcher_death" && len(g.Listeners) > 0 {
					effect = Restarts // the guardian gets the listeners of kept groups only when it starts
				}
				if strings.Contains(n.raw, "{port}") && !old.contain("{port}") {
					effect = Rolls // the instances that run have no port
				}
				all = append(all, Change{group, key, o.seen, n.seen, effect})
			}
		}
	}
	compare("", a, b)
	for _, g := range now.Groups {
		if h := next.Group(g.Name); h != nil {
			compare(g.Name, flatten(now, g), flatten(next, *h))
		} else {
			all = append(all, Change{Group: g.Name, Effect: Stops})
		}
	}
	for _, g := range next.Groups {
		if now.Group(g.Name) == nil {
			effect := Starts
			if g.OnLauncherDeath == launcher.Keep && len(g.Listeners) > 0 {
				effect = Restarts
			}
			all = append(all, Change{Group: g.Name, Effect: effect})
		}
	}
	return all
}

// A leaf is a single value of the configuration: its text without secrets, and what a reload does
// if the value changes.
type leaf struct {
	raw, seen string
	effect    Effect
}

type leaves struct {
	keys []string // names of the keys, in the order of the fields of the struct
	at   map[string]leaf
}

// contain reports whether a value contains a text.
func (l leaves) contain(text string) bool {
	for _, v := range l.at {
		if strings.Contains(v.raw, text) {
			return true
		}
	}
	return false
}

// keysWith returns the keys of l, followed by those that only m has.
func (l leaves) keysWith(m leaves) []string {
	keys := slices.Clone(l.keys)
	for _, k := range m.keys {
		if _, ok := l.at[k]; !ok {
			keys = append(keys, k)
		}
	}
	return keys
}

// flatten returns the leaves of v, where v is c or one of its groups. The leaves of c do not
// include those of its groups.
func flatten(c *Config, v any) leaves {
	out, shown := leaves{at: map[string]leaf{}}, c.displayed()
	add := func(key string, l leaf) {
		out.keys = append(out.keys, key)
		out.at[key] = l
	}
	var visit func(key string, v reflect.Value, effect Effect)
	visit = func(key string, v reflect.Value, effect Effect) {
		switch v := v.Interface().(type) {
		case []Group:
			return
		case map[string]string:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				text := shown.env(name, v[name])
				if key == "env_file" { // all values from env_file are hidden, because such files usually contain secrets
					text = mask.Mark
				}
				add(join(key, name), leaf{strconv.Quote(v[name]), strconv.Quote(text), effect})
			}
			return
		case []string:
			add(key, leaf{fmt.Sprintf("%q", v), fmt.Sprintf("%q", shown.args(v)), effect})
			return
		}
		switch v.Kind() {
		case reflect.Struct:
			for k := range v.NumField() {
				f := v.Type().Field(k)
				e := effect
				if tag, ok := effects[f.Tag.Get("reload")]; ok {
					e = tag
				}
				visit(join(key, cmp.Or(f.Tag.Get("show"), f.Tag.Get("yaml"))), v.Field(k), e)
			}
		case reflect.Map: // conditions or rlimits
			for _, name := range sortedKeys(v) {
				s := v.MapIndex(reflect.ValueOf(name)).String()
				add(join(key, name), leaf{s, s, effect})
			}
		case reflect.Slice:
			if v.Type().Elem().Kind() != reflect.Struct {
				add(key, leaf{fmt.Sprint(v.Interface()), fmt.Sprint(v.Interface()), effect})
				return
			}
			for k := range v.Len() {
				visit(index(key, k), v.Index(k), effect)
			}
		default:
			s := show(v)
			add(key, leaf{s, shown.masker.Mask(s), effect})
		}
	}
	visit("", reflect.ValueOf(v), AtOnce)
	return out
}
