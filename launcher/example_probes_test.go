//go:build unix

package launcher_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// A program that does not know the launcher is ready when its probes succeed. The port of a probe
// can be that which the launcher has chosen for the process.
func ExampleProbe() {
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	often := 50 * time.Millisecond
	var port launcher.Port = "{port}"
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{{
		Name:           "web",
		Command:        []string{"python3", "-m", "http.server", "--bind", "127.0.0.1", "{port}"},
		Desired:        1,
		StartupProbe:   launcher.Probe{TCPSocket: launcher.TCPSocketAction{Port: port}, Period: often, FailureThreshold: 500},
		ReadinessProbe: launcher.Probe{HTTPGet: launcher.HTTPGetAction{Path: "/", Port: port, Headers: []launcher.HTTPHeader{{Name: "Accept", Value: "text/html"}}}, Period: often},
		LivenessProbe:  launcher.Probe{Exec: launcher.ExecAction{Command: []string{"true"}}, Period: often},
	}}})
	if err != nil {
		panic(err)
	}
	fmt.Println("ready:", m.Ready(ctx) == nil)
	m.Shutdown().Wait(ctx)
	// Output:
	// ready: true
}

// A probe of a gRPC server asks grpc.health.v1 for one of its services.
func ExampleGRPCAction() {
	p := launcher.Probe{GRPC: launcher.GRPCAction{Port: "9000", Service: "queue"}, FailureThreshold: 5}
	g := launcher.GroupConfig{Name: "queue", Command: []string{"queue"}, Desired: 1, LivenessProbe: p}
	fmt.Println(launcher.Config{Dir: "/run/swansong", Groups: []launcher.GroupConfig{g}}.Validate())
	// Output:
	// <nil>
}
