package config_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

func TestDiff_ListsEachChangeWithItsEffect(t *testing.T) {
	now := parse(t, `
state_dir: /var/lib/launcher
process_groups:
  - name: gone
  - name: kv
    desired_instances: 2
    args: [--data, /srv, --token=hunter2]
    env: {LEVEL: debug, PASSWORD: hunter2, OLD: "1"}
    restart_policy: never
    livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: X-Api-Token, value: hunter2}]}}
    listeners: [{name: http, address: ":80"}]
`)
	next := parse(t, `
state_dir: /srv/launcher
metrics: {address: ":9464"}
process_groups:
  - name: fresh
  - name: kv
    desired_instances: 3
    min_healthy_instances: 2
    args: [--data, /data, --token=hunter3]
    env: {PASSWORD: hunter3, LEVEL: "debug", NEW: "1"}
    restart_policy: {policy: always, initial_backoff: 1000ms}
    livenessProbe: {httpGet: {port: 81, httpHeaders: [{name: X-Api-Token, value: hunter3}]}}
    listeners: [{name: http, address: ":80"}, {name: grpc, address: ":90"}]
    shutdown: {max_duration: 20s}
    success_exit_codes: [0, 7]
`)
	want := []string{
		"~ state_dir: /var/lib/launcher → /srv/launcher (with the next launcher)",
		"~ total_deadline: 15s by default → 27.5s by default (at once)",
		"~ metrics.address: – → :9464 (with an upgrade)",
		"- gone (stops the group)",
		`~ kv: args: ["--data" "/srv" "--token=***"] → ["--data" "/data" "--token=***"] (rolls the group)`,
		`~ kv: env.OLD: "1" → – (rolls the group)`,
		`~ kv: env.PASSWORD: "***" → "***", changed (rolls the group)`,
		"~ kv: desired_instances: 2 → 3 (starts or stops some)",
		"~ kv: livenessProbe.httpGet.port: 80 → 81 (rolls the group)",
		"~ kv: livenessProbe.httpGet.httpHeaders[0].value: *** → ***, changed (rolls the group)",
		"~ kv: shutdown.max_duration: 10s → 20s (at once)",
		"~ kv: success_exit_codes: [0] → [0 7] (at once)",
		"~ kv: restart_policy.policy: never → always (at once)",
		`~ kv: env.NEW: – → "1" (rolls the group)`,
		"~ kv: listeners[1].name: – → grpc (with an upgrade)",
		"~ kv: listeners[1].network: – → tcp (with an upgrade)",
		"~ kv: listeners[1].address: – → :90 (with an upgrade)",
		"+ fresh (starts the group)",
	}
	var got []string
	for _, c := range config.Diff(now, next) {
		got = append(got, c.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Diff reports a change from a total deadline that was computed from the groups to one that is
// written in the file, even if both have the same value.
func TestDiff_ReportsChangeFromComputedToConfiguredTotalDeadline(t *testing.T) {
	const groups = "process_groups: [{name: a}]\n"
	got := config.Diff(parse(t, groups), parse(t, groups+"total_deadline: 30s\n"))
	if len(got) != 1 || got[0].String() != "~ total_deadline: 15s by default → 30s (at once)" {
		t.Errorf("%v", got)
	}
}

// A change of the listeners that the guardian holds open has the effect Upgrades: only an upgrade
// of the launcher applies it.
func TestDiff_ChangeOfKeptListenersNeedsUpgrade(t *testing.T) {
	now := parse(t, `{state_dir: /run/launcher, process_groups: [{name: a, listeners: [{name: l, address: ":80"}]}, {name: b}]}`)
	next := parse(t, `
state_dir: /run/launcher
process_groups:
  - {name: a, listeners: [{name: l, address: ":80"}], on_launcher_death: keep}
  - {name: b, on_launcher_death: keep}
  - {name: c, listeners: [{name: l, address: ":90"}], on_launcher_death: keep}
  - {name: d, listeners: [{name: l, address: ":91"}]}
  - {name: e, on_launcher_death: keep}
`)
	want := []string{
		"~ a: on_launcher_death: kill → keep (with an upgrade)",
		"~ b: on_launcher_death: kill → keep (rolls the group)",
		"+ c (with an upgrade)",
		"+ d (starts the group)",
		"+ e (starts the group)",
	}
	var got []string
	for _, c := range config.Diff(now, next) {
		got = append(got, c.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A diff says "rolls the group" beside a changed setting if, and only if, the change replaces the
// processes.
func TestDiff_SaysRollsExactlyForSettingsWhoseReloadReplacesProcesses(t *testing.T) {
	// Leave out Name, because a group with another name is another group. Leave out Env and
	// Conditions, because each name in them is a key of its own.
	untold := []string{"Name", "Env", "Conditions"}
	fields := reflect.TypeFor[spec.Group]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		effect, ok := config.EffectOf(name)
		if slices.Contains(untold, name) {
			continue
		}
		var changed spec.Group
		fill(reflect.ValueOf(&changed).Elem().Field(i))
		replaces := !spec.Group{}.SameProcess(changed)
		if !ok || (effect == config.Rolls || effect == config.Upgrades) != replaces {
			t.Errorf("%s: effect %q, but a reload replaces the processes: %v", name, effect, replaces)
		}
	}
}

// fill sets v to a value other than the zero value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Uint64:
		v.SetUint(1)
	default:
		v.SetInt(1)
	}
}

// A reload adds a hook with the placeholder {port}. If no other setting of the group contains
// {port}, the hook rolls the group, because its processes have no port yet. A check of canaries
// with {port} rolls nothing, because the launcher does not replace the placeholder there.
func TestDiff_FirstPortPlaceholderInHookRollsGroup(t *testing.T) {
	const (
		hook  = ", pre_stop: [{command: drain, args: ['{port}']}]"
		check = ", canary: {instances: 1, check: {command: judge, args: ['{port}']}}"
	)
	now := parse(t, "{process_groups: [{name: a}, {name: b, env: {PORT: '{port}'}}, {name: c}, {name: d"+check+"}]}")
	next := parse(t, "{process_groups: [{name: a"+hook+"}, {name: b, env: {PORT: '{port}'}"+hook+"}, {name: c"+check+"}, {name: d"+check+hook+"}]}")
	effects := map[string]config.Effect{}
	for _, c := range config.Diff(now, next) {
		if strings.Contains(c.New, "{port}") {
			effects[c.Group] = c.Effect
		}
	}
	testkit.Equal(t, "effects", effects, map[string]config.Effect{"a": config.Rolls, "b": config.AtOnce, "c": config.AtOnce, "d": config.Rolls})
}

func TestDiff_IsEmptyForEqualConfigurations(t *testing.T) {
	a := parse(t, "process_groups: [{name: a}, {name: b, env: {X: '1', Y: '2'}}]")
	b := parse(t, "process_groups:\n- name: b\n  env: {Y: \"2\", X: \"1\"}\n  max_surge: 1\n- name: a\n")
	if diff := config.Diff(a, b); len(diff) > 0 {
		t.Errorf("%v", diff)
	}
}

// WithGroup returns a group of another configuration in the place of the present one, with the
// present dependencies.
func TestWithGroup_ReplacesOneGroupOfConfiguration(t *testing.T) {
	was := parse(t, `{process_groups: [{name: kv}, {name: web, command: a}]}`)
	now := parse(t, `{process_groups: [{name: kv, command: a}, {name: web, command: b, depends_on: [kv]}, {name: fresh}]}`)
	next := parse(t, `{process_groups: [{name: kv, command: a}, {name: web, command: c, depends_on: [kv]}, {name: fresh}]}`)
	for name, c := range map[string]struct {
		of   any
		want []string
	}{
		"web":   {was, []string{"~ web: command: a → c (rolls the group)"}},
		"fresh": {was, []string{"~ web: command: b → c (rolls the group)", "+ fresh (starts the group)"}},
		"kv":    {nil, []string{"~ web: command: b → c (rolls the group)", "+ kv (starts the group)"}},
		"other": {was, []string{"~ web: command: b → c (rolls the group)"}},
	} {
		var got []string
		for _, change := range config.Diff(now.WithGroup(name, c.of).(*config.Config), next) {
			got = append(got, change.String())
		}
		testkit.Equal(t, name, got, c.want)
	}
	testkit.Equal(t, "WithGroup has changed its receiver", config.Diff(now, parse(t, `{process_groups: [{name: kv, command: a}, {name: web, command: b, depends_on: [kv]}, {name: fresh}]}`)), []config.Change(nil))
}

func TestDiff_HidesSecretValues(t *testing.T) {
	now := parse(t, "secret: {values: [correct horse]}\nprocess_groups: [{name: kv}]")
	next := parse(t, "secret: {values: [battery staple]}\nprocess_groups: [{name: kv, mask: off}]")
	var got []string
	for _, c := range config.Diff(now, next) {
		got = append(got, c.String())
	}
	testkit.Equal(t, "changes", got, []string{`~ secret.values: ["***"] → ["***"], changed (at once)`, "~ kv: mask: on → off (at once)"})
}
