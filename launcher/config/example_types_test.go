package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// A file is read, printed, and passed to package launcher. Keys that it does not have get their
// defaults.
func ExampleConfig() {
	c, err := config.Parse("launcher.yaml", []byte(`
process_groups:
  - name: kv
    desired_instances: 2
    env: {API_TOKEN: hunter2}
    shutdown: {grace_period: 5s}
  - name: web
    depends_on: [kv]
`))
	if err != nil {
		panic(err)
	}
	kv := c.Group("kv")
	fmt.Println(kv.Desired, kv.Restart.Policy, "a stop of all takes at most", c.StopBound())

	cfg := c.Launcher()
	fmt.Println(len(cfg.Groups), "groups in", cfg.Dir == c.Dir())

	var text strings.Builder
	if err := c.Masked().Print(&text); err != nil {
		panic(err)
	}
	for line := range strings.Lines(text.String()) {
		if strings.Contains(line, "API_TOKEN") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	var asJSON strings.Builder
	if err := c.PrintJSON(&asJSON); err != nil {
		panic(err)
	}
	fmt.Println(strings.Contains(asJSON.String(), `"API_TOKEN": "***"`))
	// Output:
	// 2 on-failure a stop of all takes at most 24s
	// 2 groups in true
	// API_TOKEN: '***'
	// true
}

// Groups that depend on one another are stopped one after the other, so their bounds add up.
func ExampleGroup() {
	c, err := config.Parse("launcher.yaml", []byte("process_groups: [{name: kv, shutdown: {max_duration: 20s}}, {name: web, depends_on: [kv]}]"))
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"web", "kv"} {
		var g *config.Group = c.Group(name)
		fmt.Println(g.Name, g.StopBound())
	}
	fmt.Println("all", c.StopBound())
	// Output:
	// web 12s
	// kv 22s
	// all 34s
}

// Errors of package launcher are located by file, line and key as well.
func ExampleSource() {
	file, remove := exampleFile("process_groups:\n  - name: sleeper\n    command: sleep\n    desired_instances: 2\n")
	defer remove()
	c, source, err := config.LoadSource(file)
	if err != nil {
		panic(err)
	}
	cfg := c.Launcher()
	cfg.Groups[0].Desired = -1 // stands for a change that the program makes after reading the file
	err = source.Locate(cfg.Validate())
	_, what, _ := strings.Cut(err.Error(), "launcher.yaml:")
	where, _, _ := strings.Cut(what, ": ")
	fmt.Println(where)
	line, column := source.Position("sleeper", "command")
	fmt.Println("the command is at", line, column)
	// Output:
	// 4:5
	// the command is at 3 5
}

// Tools get the parts of an error, such as the line for an editor.
func ExampleErrors() {
	_, err := config.Parse("launcher.yaml", []byte("process_groups:\n  - name: kv\n    desired_instances: none\n"))
	var all config.Errors
	if errors.As(err, &all) {
		var first *config.Error = all[0]
		fmt.Println(len(all), "at line", first.Line, "of", first.Key)
	}
	// Output:
	// 1 at line 3 of process_groups[0].desired_instances
}

// A change has the effect that a reload will have on the processes.
func ExampleEffect() {
	now, err := config.Parse("launcher.yaml", []byte("process_groups: [{name: kv, desired_instances: 2}]"))
	if err != nil {
		panic(err)
	}
	next, err := config.Parse("launcher.yaml", []byte("process_groups: [{name: kv, desired_instances: 2, args: [--fast]}]"))
	if err != nil {
		panic(err)
	}
	for _, change := range config.Diff(now, next) {
		var effect config.Effect = change.Effect
		fmt.Println(change.Key, "needs:", effect)
	}
	// Output:
	// args needs: rolls the group
}

// Sizes have units, in files and in output.
func ExampleBytes() {
	fmt.Println(config.Bytes(10<<20), config.Bytes(1500))
	// Output:
	// 10MiB 1500
}

// A value is secret because of the name of its variable, because the configuration lists it, or
// because a secret file contains it.
func ExampleConfig_secret() {
	c, err := config.Parse("launcher.yaml", []byte(`
secret: {names: ["*_PIN"], values: [correct horse], files: [/run/secrets/db]}
process_groups: [{name: kv}, {name: debugged, mask: off}]
`))
	if err != nil {
		panic(err)
	}
	var secret launcher.SecretConfig = c.Secret
	fmt.Println(secret.Names, secret.Values, secret.Files, c.Group("debugged").Unmasked)
	// Output:
	// [*_PIN] [correct horse] [/run/secrets/db] true
}

// The group kv has been rolled back, so it does not run with the configuration that was loaded last.
// WithGroup returns the configuration that holds now: the one that was loaded last, with the earlier
// one of kv. At the next reload, the launcher compares the file with it.
func ExampleConfig_WithGroup() {
	parse := func(text string) *config.Config {
		c, err := config.Parse("launcher.yaml", []byte(text))
		if err != nil {
			panic(err)
		}
		return c
	}
	before := parse("process_groups: [{name: kv, desired_instances: 2}, {name: web}]")
	loaded := parse("process_groups: [{name: kv, desired_instances: 3}, {name: web, args: [--fast]}]")
	holds := loaded.WithGroup("kv", before).(*config.Config)
	for _, change := range config.Diff(holds, loaded) {
		fmt.Println(change.Group, change.Key)
	}
	// Output:
	// kv desired_instances
	// kv min_healthy_instances
}

// A probe has the keys that it has in the file of a Deployment. What it does not set has the
// defaults of Kubernetes.
func ExampleProbe() {
	c, err := config.Parse("launcher.yaml", []byte(`
process_groups:
  - name: web
    livenessProbe:
      httpGet: {path: /healthz, port: 8080}
      periodSeconds: 5
`))
	if err != nil {
		panic(err)
	}
	var p config.Probe = c.Group("web").LivenessProbe
	fmt.Println(p.Describe(), "every", p.Period, "within", p.Timeout, "fails after", p.FailureThreshold)
	// Output:
	// httpGet /healthz on port 8080 every 5s within 1s fails after 3
}

// DirOf reads the file of a launcher and returns the launcher's directory, which a client needs.
// The file in this example has limits, conditions for dependencies, and variables of the
// environment.
func ExampleDirOf() {
	file := filepath.Join(os.TempDir(), fmt.Sprintf("example-%d.yaml", os.Getpid()))
	defer os.Remove(file)
	text := `
state_dir: /run/${NO_SUCH_VARIABLE:-launcher}
process_groups:
  - {name: migrate, kind: job, command: sleep}
  - name: web
    command: sleep
    protocol: signals
    depends_on: {migrate: completed}
    rlimits: {nofile: 1024:4096}
    limits: {memory: 256MiB, cpus: 0.5, if_unavailable: warn}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		panic(err)
	}
	fmt.Println(config.DirOf(file))
	c, err := config.Load(file)
	if err != nil {
		panic(err)
	}
	web := c.Group("web")
	var limits launcher.LimitConfig = web.Limits
	var condition launcher.Condition = web.Conditions["migrate"]
	var files launcher.Rlimit = web.Rlimits[0]
	fmt.Println(condition, files, config.Bytes(limits.Memory), limits.CPUs, limits.IfUnavailable)
	// Output:
	// /run/launcher <nil>
	// completed {nofile 1024 4096} 256MiB 0.5 warn
}
