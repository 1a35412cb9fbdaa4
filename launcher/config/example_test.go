package config_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// exampleFile writes a file. It returns its name and a function that removes it.
func exampleFile(text string) (name string, remove func()) {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		panic(err)
	}
	name = filepath.Join(dir, "launcher.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return name, func() { os.RemoveAll(dir) }
}

// Keys that the file does not have get their defaults.
func ExampleLoad() {
	file, remove := exampleFile("process_groups: [{name: sleeper, command: sleep, args: [\"1000\"], protocol: signals}]")
	defer remove()
	c, err := config.Load(file)
	if err != nil {
		panic(err)
	}
	g := c.Group("sleeper")
	fmt.Println(g.Desired, g.Shutdown.Max, g.OnLauncherDeath)
	// Output:
	// 1 10s kill
}

// A file that is too large for a configuration is not read to its end.
func ExampleReadFile() {
	_, err := config.ReadFile("/dev/zero")
	fmt.Println(err)
	// Output:
	// /dev/zero: is larger than 4MiB, the limit for a configuration file
}

// The source that LoadSource returns knows the line of each key in the file. The launcher uses it
// in the text of errors, also of those that only its start can find.
func ExampleLoadSource() {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer taken.Close()
	file, remove := exampleFile(`process_groups:
  - name: sleeper
    command: sleep
    listeners: [{name: http, address: "` + taken.Addr().String() + `"}]
`)
	defer remove()
	c, source, err := config.LoadSource(file)
	if err != nil {
		panic(err)
	}
	cfg := c.Launcher()
	cfg.Dir = filepath.Join(filepath.Dir(file), "run")
	_, err = launcher.Start(context.Background(), cfg)

	where, what, _ := strings.Cut(source.Locate(err).Error(), ": listen tcp ")
	fmt.Println(filepath.Base(where))
	fmt.Println("says which address:", strings.HasPrefix(what, taken.Addr().String()))
	// Output:
	// launcher.yaml:4:5: process_groups[0].listeners
	// says which address: true
}

// A program that loads a file can log which files it opens.
func ExampleLoadSourceFunc() {
	file, remove := exampleFile("process_groups: [{name: sleeper, command: sleep}]\n")
	defer remove()
	c, _, err := config.LoadSourceFunc(file, func(name string) (*os.File, error) {
		fmt.Println("opens", filepath.Base(name))
		return os.Open(name)
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Groups[0].Name)
	// Output:
	// opens launcher.yaml
	// sleeper
}

// A launcher that runs reads its file again, for instance in a Reread of launcher.Config.
func ExampleLoadAgain() {
	file, remove := exampleFile("process_groups: [{name: sleeper, command: sleep}]\n")
	defer remove()
	now, err := config.Load(file)
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(file, []byte("process_groups: [{name: sleeper, command: sleep, desired_instances: 2}]\n"), 0o600); err != nil {
		panic(err)
	}
	next, _, err := config.LoadAgain(file)
	if err != nil {
		panic(err)
	}
	for _, c := range config.Diff(now, next) {
		fmt.Println(c)
	}
	// Output:
	// ~ sleeper: desired_instances: 1 → 2 (starts or stops some)
	// ~ sleeper: min_healthy_instances: 1 → 2 (at once)
}

// ParseSource also returns a Source, with which a program finds the line and column of each key.
func ExampleParseSource() {
	c, source, err := config.ParseSource("launcher.yaml", []byte("process_groups:\n  - name: web\n    max_surge: 2\n"))
	if err != nil {
		panic(err)
	}
	line, column := source.Position(c.Groups[0].Name, "max_surge")
	fmt.Println(line, column)
	// Output:
	// 3 5
}

// Under systemd, the default directory of a launcher is the one that RuntimeDirectory= of its unit
// names.
func ExampleDefaultDir() {
	defer os.Setenv("RUNTIME_DIRECTORY", os.Getenv("RUNTIME_DIRECTORY"))
	os.Setenv("RUNTIME_DIRECTORY", "/run/swansong")
	fmt.Println(config.DefaultDir())
	// Output:
	// /run/swansong
}

// All errors are reported at once, with their positions.
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
	// launcher.yaml:6:5: process_groups[0].max_surge: 0 with min_healthy_instances = desired_instances (2) leaves no way to replace an instance; make it 1 or more, or lower min_healthy_instances
	// launcher.yaml:7:5: process_groups[0].health_check_timout: unknown key; did you mean health_check_timeout?
}

// An operator sees the effects of a reload before it is applied.
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
	// ~ kv: env.API_TOKEN: "***" → "***", changed (rolls the group)
	// ~ kv: desired_instances: 2 → 3 (starts or stops some)
	// ~ kv: min_healthy_instances: 2 → 3 (at once)
	// + cache (starts the group)
}

func ExampleConfig_Masked() {
	c, err := config.Parse("launcher.yaml", []byte(`
secret: {names: ["*-pin"]}
process_groups: [{name: kv, args: [--card-pin, "1234", "--db=postgres://kv:hunter2@db/kv"], env: {API_TOKEN: swordfish, MOTTO: a swordfish}}]
`))
	if err != nil {
		panic(err)
	}
	kv := c.Masked().Group("kv")
	fmt.Println(kv.Command[1:])
	fmt.Println(kv.Env)
	// Output:
	// [--card-pin *** --db=postgres://kv:***@db/kv]
	// [API_TOKEN=*** MOTTO=a ***]
}
