//go:build unix

package launcher_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// A group starts when the groups that it depends on meet its conditions. The condition started is
// weaker than healthy, and completed is stronger.
func TestConditions_GroupStartsWhenItsDependenciesMeetThem(t *testing.T) {
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	never := runners("slow", 1, "--ready-after", "-1s")
	migrate := jobThat("migrate", "until [ -e "+gate+" ]; do sleep 0.1; done; touch "+dir+"/migrated")
	web := jobThat("web", "[ -e "+dir+"/migrated ] && exec sleep 1000")
	web.Job = false
	web.DependsOn = []string{"slow", "migrate"}
	web.Conditions = map[string]launcher.Condition{"slow": launcher.IsStarted, "migrate": launcher.IsCompleted}
	h := launch(t, never, migrate, web)
	h.waitForState("migrate-1", launcher.Ready)
	h.readUntil("slow is started", func(e launcher.Event) bool { return e.Process == "slow-1" })
	// Wait until the group web no longer waits for slow, which is started, but only for migrate.
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) {
		if got, _ := h.GroupHealth("web"); got.Message == "waits for migrate (completed)" {
			break
		} else if got.Total > 0 {
			t.Fatalf("it has started too early: %+v\n%s", got, h.story())
		} else if time.Now().After(late) {
			t.Fatalf("it does not wait for migrate only: %+v\n%s", got, h.story())
		}
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.waitForState("web-1", launcher.Ready)
	if got, _ := h.GroupHealth("slow"); got.Healthy {
		t.Error("the group that needs only to be started is healthy")
	}
}

// A group that depends on another one with the condition started does not wait for a message of its
// processes.
func TestConditions_StartedIsMetByProcessThatSendsNoMessage(t *testing.T) {
	mute := group("mute", 5, "")
	mute.Command, mute.Protocol, mute.HealthCheckTimeout = []string{"sleep", "1000"}, launcher.Notify, time.Hour
	web := jobThat("web", "exec sleep 1000")
	web.DependsOn, web.Conditions = []string{"mute"}, map[string]launcher.Condition{"mute": launcher.IsStarted}
	launch(t, mute, web).waitForState("web-1", launcher.Ready)
}

// A group that waits for a job to complete never starts if the job fails, and Finished says so.
func TestConditions_FailedJobDoesNotCountAsCompleted(t *testing.T) {
	migrate := jobThat("migrate", "exit 3")
	migrate.Restart.Policy = launcher.Never
	web := jobThat("web", "exit 0")
	web.DependsOn, web.Conditions = []string{"migrate"}, map[string]launcher.Condition{"migrate": launcher.IsCompleted}
	h := launch(t, migrate, web)
	err := h.Finished(soon(t))
	if err == nil {
		t.Fatal("no error")
	}
	testkit.Equal(t, "error", err.Error(), "launcher: group \"migrate\": 1 of 1 process failed\n"+
		"launcher: group \"web\" did not start: it waits until group \"migrate\" is completed, but \"migrate\" has finished and will not be completed")
}

// A group cannot wait until a service is completed: only jobs complete.
func TestConditions_CompletedIsRefusedForDependencyThatIsNoJob(t *testing.T) {
	db, web := plainGroup("db", 1), plainGroup("web", 1)
	web.DependsOn, web.Conditions = []string{"db"}, map[string]launcher.Condition{"db": launcher.IsCompleted}
	err := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{db, web}}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	testkit.Equal(t, "error", err.Error(), `launcher: group "web": DependsOn: "db" is a service, which is not meant to complete; make it a job, or wait until it is healthy`)
}
