package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Effect is what a change does when it is taken over.
type Effect string

const (
	AtOnce   Effect = "at once"                // holds from the next time it is looked at
	Starts   Effect = "starts the group"       // which is new
	Stops    Effect = "stops the group"        // which is gone
	Scales   Effect = "starts or stops some"   // without touching the others
	Rolls    Effect = "rolls the group"        // every instance is replaced
	Restarts Effect = "with the next launcher" // not before
)

var effects = map[string]Effect{"now": AtOnce, "scale": Scales, "roll": Rolls, "launcher": Restarts}

// A Change is a key that is different. The values are as they would be printed: without secrets, so that two that differ
// can look the same.
type Change struct {
	Group    string // empty for what concerns the launcher
	Key      string // in the group, as in shutdown.max_duration; empty for the group as a whole
	Old, New string // empty for what is not there
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
		new += ", changed" // a secret
	}
	return fmt.Sprintf("~ %s: %s → %s (%s)", at, dash(old), dash(new), c.Effect)
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// Diff returns what is different in next, in the order of the keys: what concerns the launcher, then group by group, known
// by its name. The order of groups and how their values are written make no difference.
func Diff(now, next *Config) []Change {
	a, b := flatten(now, *now), flatten(next, *next)
	for c, all := range map[*Config]leaves{now: a, next: b} {
		if l := all.at["total_deadline"]; c.TotalDeadline == c.derivedTotal() { // which no file has to have
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
					effect = Restarts // the guardian holds the listeners of those that are kept, from its start
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
			if g.OnLauncherDeath == Keep && len(g.Listeners) > 0 {
				effect = Restarts
			}
			all = append(all, Change{Group: g.Name, Effect: effect})
		}
	}
	return all
}

// A leaf is a value: what it is, what may be seen of it, and what a change of it does.
type leaf struct {
	raw, seen string
	effect    Effect
}

type leaves struct {
	keys []string // in the order of the struct
	at   map[string]leaf
}

// keysWith returns the keys of both.
func (l leaves) keysWith(m leaves) []string {
	keys := slices.Clone(l.keys)
	for _, k := range m.keys {
		if _, ok := l.at[k]; !ok {
			keys = append(keys, k)
		}
	}
	return keys
}

// flatten returns the leaves of a struct of c's, without those of groups.
func flatten(c *Config, v any) leaves {
	out, r := leaves{at: map[string]leaf{}}, c.Redactor()
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
				add(join(key, name), leaf{strconv.Quote(v[name]), strconv.Quote(r.Env(name, v[name])), effect})
			}
			return
		case []string:
			add(key, leaf{fmt.Sprintf("%q", v), fmt.Sprintf("%q", r.Args(v)), effect})
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
				visit(join(key, f.Tag.Get("yaml")), v.Field(k), e)
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
			add(key, leaf{s, s, effect})
		}
	}
	visit("", reflect.ValueOf(v), AtOnce)
	return out
}
