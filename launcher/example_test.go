//go:build unix

package launcher_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// A group of two processes of a program that does not speak the protocol.
func Example() {
	dir, err := os.MkdirTemp("", "launcher")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	m, err := launcher.Start(context.Background(), launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{{
		Name:     "sleeper",
		Command:  []string{"sleep", "1000"},
		Protocol: launcher.Signals,
		Desired:  2,
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fmt.Println("ready:", m.Ready(ctx))
	fmt.Println("restarted:", m.Restart(ctx, "sleeper", "because we can"))
	for _, p := range m.Health()[0].Processes {
		if p.State == launcher.Ready {
			fmt.Println("revision", p.Revision)
		}
	}
	fmt.Println("drained:", m.Shutdown().Wait(ctx))
	// Output:
	// ready: <nil>
	// restarted: <nil>
	// revision 2
	// revision 2
	// drained: <nil>
}
