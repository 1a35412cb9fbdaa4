package export_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/export"
)

func ExampleTo() {
	c, err := config.Parse("launcher.yaml", []byte(`
process_groups:
  - name: keyvalue-runner
    desired_instances: 3
    min_healthy_instances: 2
    depends_on: [store]
    export: {image: registry.example.com/keyvalue:1.0.0}
  - name: store
    export: {image: registry.example.com/store:1.0.0}
`))
	if err != nil {
		panic(err)
	}
	r, err := export.To("kubernetes", c)
	if err != nil {
		panic(err)
	}
	for _, f := range r.Files {
		fmt.Println(f.Name)
	}
	for line := range strings.Lines(string(r.Files[0].Text)) {
		if strings.Contains(line, "maxUnavailable") || strings.Contains(line, "GracePeriod") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	fmt.Println(r.Gaps[0])
	// Output:
	// keyvalue-runner.deployment.yaml
	// store.deployment.yaml
	// maxUnavailable: 1
	// terminationGracePeriodSeconds: 13
	// keyvalue-runner: depends_on: Deployments have no order; let the process wait, or stay unready, until it can reach store
}

func ExampleResult_Print() {
	r, err := export.Systemd(store())
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		panic(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "TimeoutStop") {
			fmt.Print(line)
		}
	}
	// Output:
	// # store@.service
	// TimeoutStopSec=13
	// # store.target
}

// store returns a configuration with few settings that systemd, Kubernetes or Nomad do not support.
func store() *config.Config {
	c, err := config.Parse("launcher.yaml", []byte(`
process_groups:
  - name: store
    command: /usr/bin/store
    desired_instances: 3
    min_ready_seconds: 5s
    export: {image: registry.example.com/store:1.0.0}
`))
	if err != nil {
		panic(err)
	}
	return c
}

// grep prints the lines of a file that contain one of the words.
func grep(f export.File, words ...string) {
	for line := range strings.Lines(string(f.Text)) {
		for _, w := range words {
			if strings.Contains(line, w) {
				fmt.Println(strings.TrimSpace(line))
			}
		}
	}
}

func ExampleTargets() {
	fmt.Println(export.Targets())
	// Output:
	// [kubernetes nomad systemd]
}

func ExampleKubernetes() {
	r, err := export.Kubernetes(store())
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Files[0].Name)
	grep(r.Files[0], "replicas", "minReadySeconds", "maxSurge", "GracePeriod")
	// Output:
	// store.deployment.yaml
	// replicas: 3
	// minReadySeconds: 5
	// maxSurge: 1
	// terminationGracePeriodSeconds: 13
}

func ExampleNomad() {
	r, err := export.Nomad(store())
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Files[0].Name)
	grep(r.Files[0], `"Count"`, `"Driver"`)
	// Output:
	// store.nomad.json
	// "Count": 3,
	// "Driver": "docker",
}

// Systemd returns unit files. Here they are written to a directory that stands for that of systemd.
func ExampleSystemd() {
	r, err := export.Systemd(store())
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "units") // a real program would use /etc/systemd/system
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := r.Write(dir); err != nil {
		panic(err)
	}
	written, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, name := range written {
		fmt.Println(filepath.Base(name))
	}
	grep(r.Files[0], "ExecStart=", "TimeoutStopSec")
	// Output:
	// store.target
	// store@.service
	// ExecStart=/usr/bin/store
	// TimeoutStopSec=13
}

// A Gap is a setting that the target supports in another way or not at all. By its key, a program
// can decide whether that is acceptable.
func ExampleGap() {
	r, err := export.Kubernetes(store())
	if err != nil {
		panic(err)
	}
	bad := func(g export.Gap) bool { return !strings.HasPrefix(g.Key, "shutdown.") && g.Key != "retry" }
	for _, gap := range r.Gaps {
		if bad(gap) {
			fmt.Println(gap.Group, "would differ in", gap.Key)
		}
	}
	// Output:
	// store would differ in protocol
	// store would differ in on_failure
	// store would differ in restart_policy
	// store would differ in restart_policy.crash_loop_limit
}
