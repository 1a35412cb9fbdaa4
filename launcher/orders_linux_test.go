package launcher_test

import (
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// A stopped group stays stopped under the next launcher, if the first one was killed, whatever the
// guardian does with the state file. It is started after an orderly stop of the launcher.
func TestStopGroup_GroupStaysStoppedUnderNextLauncher(t *testing.T) {
	cfg := launcher.Config{Dir: shortDir(t), Guardian: briefGuardian, Groups: []launcher.GroupConfig{plainGroup("web", 1)}}
	first := startAnother(t, cfg, "stop the group").checkLine("ready").checkLine("stopped")
	guardian := guardians(t, first.Process.Pid)[0]
	first.kill()
	awaitEnd(t, guardian, tooLong)
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "stopped under the next launcher", h.Health()[0].Stopped, true)
	h.close()
	h = launchWith(t, cfg).ready()
	testkit.Equal(t, "stopped after an orderly stop", h.Health()[0].Stopped, false)
}
