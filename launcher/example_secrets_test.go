//go:build unix

package launcher_test

import (
	"context"
	"fmt"
	"io"

	"github.com/swansong-go/swansong/launcher"
)

// The launcher masks the values that it knows to be secret, and leaves everything else as it is.
func ExampleSecretConfig() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	g := sleepers(1)
	g.Command = []string{"sh", "-c", "echo max_tokens=4096, $DB_PASSWORD, $CARD_PIN, correct horse; exec sleep 1000"}
	g.Env = []string{"DB_PASSWORD=hunter2", "CARD_PIN=12345678"}
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Output: io.Discard, Groups: []launcher.GroupConfig{g},
		Secrets: launcher.SecretConfig{Names: []string{"*_PIN"}, Values: []string{"correct horse"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Completion().Wait(ctx)
	defer m.Shutdown()

	lines, more, stop, err := m.Printed("sleeper", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	if len(lines) == 0 {
		lines = append(lines, <-more) // the process has printed nothing yet
	}
	fmt.Println(lines[0].Text)
	// Output:
	// max_tokens=4096, ***, ***, ***
}
