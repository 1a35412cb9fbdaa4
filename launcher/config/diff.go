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
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// Effect says what a reload does because of a change.
type Effect string

const (
	AtOnce   Effect = "at once"                // the new value is used at once
	Starts   Effect = "starts the group"       // the group is new
	Stops    Effect = "stops the group"        // the group was removed
	Scales   Effect = "starts or stops some"   // instances are started or stopped; the others keep running
	Rolls    Effect = "rolls the group"        // all instances are replaced
	Upgrades Effect = "with an upgrade"        // refused by a reload, applied by launcher upgrade
	Restarts Effect = "with the next launcher" // refused by a reload, applied by the next launcher
)

// effects maps a key of the file to the effect of a change of its value, or of a value inside of
// its mapping. A change of any other key has the effect AtOnce. spec.Group.SameProcess decides
// which changes roll a group, and effects must agree with it.
var effects = func() map[string]Effect {
	all := map[string]Effect{"state_dir": Restarts, "admin": Upgrades, "metrics": Upgrades, "desired_instances": Scales, "listeners": Upgrades}
	for _, key := range strings.Fields(`kind command args env env_file clear_env user group rlimits limits working_dir startupProbe readinessProbe
		livenessProbe watchdog on_launcher_death protocol lifecycle logs`) {
		all[key] = Rolls
	}
	return all
}()

// A Change is a key whose value differs between two configurations. Secrets are masked in Old and
// New, so Old and New are equal if only a secret has changed.
type Change struct {
	Group    string // empty if the change does not concern a group
	Key      string // for example shutdown.max_duration; empty if the whole group was added or removed
	Old, New string // the two values; empty if the configuration does not have the key
	Effect   Effect
}

// String returns the change in one line, as reload prints it: + and - for a group that is added or
// removed, ~ for a value, and what a reload does in parentheses. A new group that only an upgrade
// can add has the effect Upgrades and no key.
func (c Change) String() string {
	at := c.Key
	if c.Group != "" {
		at = strings.TrimSuffix(c.Group+": "+c.Key, ": ")
	}
	switch {
	case c.Effect == Starts, c.Effect == Upgrades && c.Key == "":
		return fmt.Sprintf("+ %s (%s)", at, c.Effect)
	case c.Effect == Stops:
		return fmt.Sprintf("- %s (%s)", at, c.Effect)
	}
	old, new := c.Old, c.New
	if old == new {
		// Both values are masked secrets, so their equal texts would not show that one has changed.
		new += ", changed"
	}
	return fmt.Sprintf("~ %s: %s → %s (%s)", at, dash(old), dash(new), c.Effect)
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// Diff returns the changes from the configuration now to the configuration next: first those of the
// launcher, then those of each group, in the order of the keys. Groups are matched by name; their
// order does not matter.
//
// Neither configuration is changed. A total_deadline that is derived from the groups is shown with
// the words "by default", since the user will not find it in the file.
func Diff(now, next *Config) []Change {
	a, b := flatten(now, nil), flatten(next, nil)
	for c, all := range map[*Config]leaves{now: a, next: b} {
		if l := all.at["total_deadline"]; c.TotalDeadline == c.derivedTotal() {
			l.seen += " by default"
			all.at["total_deadline"] = l
		}
	}
	var all []Change
	compare := func(group string, old, new leaves, firstPort bool) {
		for _, key := range old.keysWith(new) {
			o, n := old.at[key], new.at[key]
			if o.raw != n.raw {
				// If a key is missing from one of the two configurations, as a removed variable of
				// env is, its effect there is empty. Then take the effect from the other
				// configuration.
				effect := cmp.Or(o.effect, n.effect)
				if g := next.Group(group); key == "on_launcher_death" && len(g.Listen) > 0 {
					// The guardian, which holds listeners while no launcher runs
					// (on_launcher_death: keep), gets them only when it starts.
					effect = Upgrades
				}
				if firstPort && strings.Contains(n.raw, spec.PortPlaceholder) {
					// The running instances were started without a port, so they have to be
					// replaced.
					effect = Rolls
				}
				all = append(all, Change{group, key, o.seen, n.seen, effect})
			}
		}
	}
	compare("", a, b, false)
	for _, g := range now.Groups {
		if h := next.Group(g.Name); h != nil {
			compare(g.Name, flatten(now, &g), flatten(next, h), h.spec().UsesPort() && !g.spec().UsesPort())
		} else {
			all = append(all, Change{Group: g.Name, Effect: Stops})
		}
	}
	for _, g := range next.Groups {
		if now.Group(g.Name) == nil {
			effect := Starts
			if g.OnLauncherDeath == launcher.Keep && len(g.Listen) > 0 {
				effect = Upgrades
			}
			all = append(all, Change{Group: g.Name, Effect: effect})
		}
	}
	return all
}

// A leaf is a single value of the configuration: its text without secrets, and what a reload does
// if the value changes. Values are compared by raw, which has the secrets, and shown by seen.
type leaf struct {
	raw, seen string
	effect    Effect
}

type leaves struct {
	keys []string // names of the keys, in the order of the fields of the struct
	at   map[string]leaf
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

// flatten returns the leaves of a group, or, if g is nil, those of c without its groups.
//
// The effect of a key is looked up by its first part: the entry of shutdown in effects is also that
// of shutdown.max_duration. Groups are left out of c, because Diff compares them by their names.
func flatten(c *Config, g *Group) leaves {
	out, shown := leaves{at: map[string]leaf{}}, c.displayed()
	add := func(key, raw, seen string) {
		first, _, _ := strings.Cut(key, ".")
		first, _, _ = strings.Cut(first, "[")
		out.keys = append(out.keys, key)
		out.at[key] = leaf{raw, seen, cmp.Or(effects[first], AtOnce)}
	}
	var visit func(at string, k *setting, field reflect.Value)
	mapping := func(at string, keys []*setting, v reflect.Value) {
		for _, k := range keys {
			visit(join(at, k.name), k, k.fieldOf(v))
		}
	}
	visit = func(at string, k *setting, field reflect.Value) {
		v := k.fileForm(field)
		if !v.IsValid() { // a nil pointer, so the key has no value
			return
		}
		switch value := v.Interface().(type) {
		case []Group:
		case map[string]string:
			for _, name := range sortedKeys(v) {
				add(join(at, name), strconv.Quote(value[name]), strconv.Quote(shown.env(name, value[name])))
			}
		case map[string]rlimit:
			for _, name := range sortedKeys(v) {
				add(join(at, name), string(value[name]), string(value[name]))
			}
		case []string:
			add(at, fmt.Sprintf("%q", value), fmt.Sprintf("%q", shown.args(value)))
		default:
			switch {
			case v.Kind() == reflect.Struct:
				mapping(at, k.keys, v)
			case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
				for i := range v.Len() {
					mapping(index(at, i), elements[v.Type().Elem()], v.Index(i))
				}
			default:
				add(at, show(v), shown.masker.Mask(show(v)))
			}
		}
	}
	if g == nil {
		mapping("", configKeys, reflect.ValueOf(c).Elem())
		return out
	}
	mapping("", groupKeys, reflect.ValueOf(g).Elem())
	// all values from files are masked, because such files usually contain secrets
	for _, name := range slices.Sorted(maps.Keys(g.FromFiles)) {
		add(join("env_file", name), strconv.Quote(g.FromFiles[name]), strconv.Quote(mask.Mark))
	}
	for _, name := range slices.Sorted(maps.Keys(g.Conditions)) {
		add(join(dependsOn, name), string(g.Conditions[name]), string(g.Conditions[name]))
	}
	return out
}
