package launcher_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/swansong-go/swansong/launcher"
)

// A program that cannot take over is not executed, and the launcher goes on.
func ExampleManager_Upgrade() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(1)}, UpgradeCheck: []string{"upgrade-check"}})
	if err != nil {
		panic(err)
	}
	defer func() { m.Shutdown().Wait(ctx) }()
	fmt.Println(m.Upgrade(ctx, "/bin/echo", "a new version"))
	// Output: launcher: not upgraded to /bin/echo: the new program cannot take over: the program is not a launcher that can take over: it printed "upgrade-check" instead of "swansong upgrade ok"; this launcher goes on
}

// The command that Config.UpgradeCheck names passes its standard input and output.
func ExampleAnswerUpgradeCheck() {
	cfg := launcher.Config{Dir: "/run/launcher", Groups: []launcher.GroupConfig{sleepers(1)}}
	err := launcher.AnswerUpgradeCheck(cfg, strings.NewReader(`{"Version": 1000}`), io.Discard)
	fmt.Println(err)
	// Output: launcher: the data that the running launcher hands over has version 1000, but this program reads 1 to 1; stop the launcher, and start this program
}
