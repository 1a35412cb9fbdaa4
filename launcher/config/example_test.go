package config_test

import (
	"fmt"

	"github.com/swansong-go/swansong/launcher/config"
)

// Everything that is wrong is said at once, and where it is.
func ExampleParse() {
	_, err := config.Parse("launcher.yaml", []byte(`
process_groups:
  - name: keyvalue-runner
    desired_instances: 2
    min_healthy_instances: 2
    max_surge: 0
    health_check_timout: 30s
`))
	fmt.Println(err)
	// Output:
	// launcher.yaml:6:5: process_groups[0].max_surge: 0 with min_healthy_instances = desired_instances (2) leaves no way to replace an instance; allow one more, or one fewer
	// launcher.yaml:7:5: process_groups[0].health_check_timout: there is no such key; did you mean health_check_timeout?
}

// Before a file is taken over, its operator sees what that would do.
func ExampleDiff() {
	now, err := config.Parse("launcher.yaml", []byte("process_groups: [{name: kv, desired_instances: 2, env: {API_TOKEN: hunter2}}]"))
	if err != nil {
		panic(err)
	}
	next, err := config.Parse("launcher.yaml", []byte("process_groups: [{name: kv, desired_instances: 3, env: {API_TOKEN: hunter3}}, {name: cache}]"))
	if err != nil {
		panic(err)
	}
	for _, change := range config.Diff(now, next) {
		fmt.Println(change)
	}
	// Output:
	// ~ kv: env.API_TOKEN: "[redacted]" → "[redacted]", changed (rolls the group)
	// ~ kv: desired_instances: 2 → 3 (starts or stops some)
	// ~ kv: min_healthy_instances: 2 → 3 (at once)
	// + cache (starts the group)
}

func ExampleConfig_Redactor() {
	c, err := config.Parse("launcher.yaml", []byte(`{redact: ["*-pin"], process_groups: [{name: kv}]}`))
	if err != nil {
		panic(err)
	}
	r := c.Redactor()
	fmt.Println(r.Args([]string{"--card-pin", "1234", "--db=postgres://kv:hunter2@db/kv"}))
	fmt.Println(r.Env("API_TOKEN", "hunter2"))
	// Output:
	// [--card-pin [redacted] --db=postgres://kv:[redacted]@db/kv]
	// [redacted]
}
