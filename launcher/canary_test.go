//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// judged returns g with rolls that begin with one canary, which a shell script checks every 10 ms.
func judged(g launcher.GroupConfig, wait time.Duration, script string) launcher.GroupConfig {
	g.Roll = launcher.RollConfig{Canary: 1, CanaryWait: wait,
		Check: launcher.CanaryCheck{Command: []string{"/bin/sh", "-c", script}, Interval: 10 * time.Millisecond, Timeout: tooLong}}
	return g
}

// A command that judges the canaries turns the roll back, also if failures of processes would only
// pause it. The error has the last line that the command has printed.
func TestCanaryCheck_FailingCommandTurnsRollBack(t *testing.T) {
	g := runners("web", 3)
	h := launch(t, g).ready()
	over := begin(h, judged(g, time.Hour, `echo "looking at $SWANSONG_CANARIES of $SWANSONG_PROCESS_GROUP, revision $SWANSONG_REVISION"
		echo "too many errors in $SWANSONG_CANARIES of $SWANSONG_PROCESS_GROUP, revision $SWANSONG_REVISION" >&2; exit 3`))
	const why = "the canaries have failed their check: exit status 3: too many errors in web-4 of web, revision 2"
	h.readUntil("the roll is rolled back", step("rolling back", "rolling back to revision 1: "+why))
	var failure *launcher.RollError
	if err := awaitRoll(t, h, over); !errors.As(err, &failure) || !failure.RolledBack || !strings.Contains(err.Error(), why) {
		t.Errorf("Roll: %v", err)
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 3})
}

// While the roll waits for the canaries, the command that checks them is run again and again. The
// roll replaces the other processes only after a check that began at the end of the wait. After
// that, the command is not run any more.
func TestCanaryCheck_OtherProcessesAreReplacedAfterLastCheckSucceeds(t *testing.T) {
	dir := shortDir(t)
	g := runners("web", 3)
	h := launch(t, g).ready()
	over := begin(h, judged(g, 100*time.Millisecond, "echo x >>"+filepath.Join(dir, "checks")))
	h.readUntil("the canary is waited for", step("canary", "the others follow if these stay available for 100ms and pass their check"))
	follow := h.readUntil("the others follow", step("rolling", "the others follow"))
	canary, err := h.Process("web-4")
	if waited := follow.Time.Sub(canary.ReadyAt); err != nil || waited < 100*time.Millisecond {
		t.Errorf("the others followed %v after the canary was ready; Process: %v", waited, err)
	}
	checks, err := os.ReadFile(filepath.Join(dir, "checks"))
	if err != nil || len(checks) < 2*2 {
		t.Errorf("checks: %q, %v", checks, err)
	}
	if err := awaitRoll(t, h, over); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 3})
	after, _ := os.ReadFile(filepath.Join(dir, "checks"))
	testkit.Equal(t, "checks after the wait", string(after), string(checks))
}

// The last check is made at the end of the wait, however long the interval is.
func TestCanaryCheck_RunsOnceMoreAtEndOfCanaryWait(t *testing.T) {
	g := runners("web", 2)
	h := launch(t, g).ready()
	next := judged(g, 50*time.Millisecond, "exit 0")
	next.Roll.Check.Interval = time.Hour
	if err := h.Roll(soon(t), next, "test"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 2})
}

// A query of Prometheus judges the canaries. While the query has no value, the roll neither
// continues nor is rolled back, and the status says why.
func TestCanaryCheck_PausesRollWhilePrometheusQueryHasNoValue(t *testing.T) {
	for _, test := range []struct{ value, phase, says string }{
		{"0", "rolling back", "rolling back to revision 1: the canaries have failed their check: the query has the value 0"},
		{"0.25", "rolling", "the others follow"},
	} {
		t.Run("then "+test.value, func(t *testing.T) {
			queries, values := make(chan string), make(chan string)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				queries <- r.FormValue("query")
				result := ""
				if v := <-values; v != "" {
					result = `{"metric":{},"value":[1,"` + v + `"]}`
				}
				fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, result)
			}))
			defer server.Close()
			g := runners("web", 3)
			h := launch(t, g).ready()
			g.Roll = launcher.RollConfig{Canary: 2, CanaryWait: time.Millisecond, Check: launcher.CanaryCheck{Prometheus: server.URL,
				Query: `errors{group="{group}", id=~"{ids}"} < bool 1`, Interval: time.Millisecond, Timeout: tooLong}}
			over := begin(h, g)
			for range 2 {
				testkit.Equal(t, "query", <-queries, `errors{group="web", id=~"web-4|web-5"} < bool 1`)
				values <- ""
			}
			h.readUntil("there is no answer", step("canary", "the check of the canaries gave no answer, and is repeated: prometheus at "+server.URL+": the query has no value"))
			testkit.Equal(t, "further query", <-queries, `errors{group="web", id=~"web-4|web-5"} < bool 1`)
			health, err := h.GroupHealth("web")
			if want := "; 2 are available, and the others follow when these pass their check: no answer: prometheus at " + server.URL; err != nil || !strings.Contains(health.Message, want) {
				t.Errorf("message is %q, want %q", health.Message, want)
			}
			values <- test.value
			h.readUntil("the roll goes on", step(test.phase, test.says))
			if err := awaitRoll(t, h, over); (err == nil) != (test.value != "0") {
				t.Errorf("Roll: %v", err)
			}
			testkit.Equal(t, "steps", strings.Count(h.story(), "gave no answer"), 1)
		})
	}
}

// A command that takes longer than its timeout gives no answer, and neither does one that cannot be
// started any more. At the progress deadline, OnFailure says what follows.
func TestCanaryCheck_CommandWithoutAnswerFailsRollAtProgressDeadline(t *testing.T) {
	dir := shortDir(t)
	program := filepath.Join(dir, "judge")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := runners("web", 3)
	h := launch(t, g).ready()
	next := judged(g, time.Millisecond, "")
	next.Roll.Check.Command, next.Roll.Check.Timeout = []string{program}, 10*time.Millisecond
	// The deadline is long enough for the start of the canary, even on a busy machine.
	next.Roll.ProgressDeadline = 5 * time.Second
	over := begin(h, next)
	h.readUntil("the command takes too long", step("canary", "and is repeated: "+program+": the check took longer than 10ms"))
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	h.readUntil("the command is missing", step("canary", "no such file or directory"))
	var failure *launcher.RollError
	if err := awaitRoll(t, h, over); !errors.As(err, &failure) || failure.RolledBack || !strings.Contains(err.Error(), "the check of the canaries has given no answer for 5s") {
		t.Errorf("Roll: %v", err)
	}
	health, _ := h.GroupHealth("web")
	if health.Roll == nil || !health.Roll.Paused {
		t.Errorf("the roll is not paused: %+v", health.Roll)
	}
}

// A check that is under way ends with its roll, whether a newer order supersedes the roll or the
// launcher stops. Its result does not count for the newer roll.
func TestCanaryCheck_IsCancelledWhenItsRollIsSuperseded(t *testing.T) {
	dir := shortDir(t)
	begun := filepath.Join(dir, "begun")
	g := runners("web", 2)
	h := launch(t, g).ready()
	next := judged(g, time.Hour, "echo $$ >>"+begun+"; trap '' TERM; exec sleep 1000")
	for range 2 {
		first := begin(h, next)
		h.readUntil("the canary is waited for", step("canary", "pass their check"))
		var pid int
		for late := time.Now().Add(tooLong); pid == 0; time.Sleep(time.Millisecond) {
			text, _ := os.ReadFile(begun)
			fmt.Sscan(string(text), &pid)
			if time.Now().After(late) {
				t.Fatal("no check is made")
			}
		}
		if err := os.Remove(begun); err != nil {
			t.Fatal(err)
		}
		if err := h.Roll(soon(t), g, "another"); err != nil {
			t.Fatal(err)
		}
		if err := awaitRoll(t, h, first); !errors.Is(err, launcher.ErrSuperseded) {
			t.Errorf("the first roll: %v", err)
		}
		for late := time.Now().Add(tooLong); isThere(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatal("the command still runs")
			}
		}
	}
	begin(h, next)
	h.readUntil("the canary is waited for", step("canary", "pass their check"))
	awaitFile(t, begun, true)
	h.close() // the stop does not wait for the command that checks the canaries
}

// isThere reports whether a process exists.
func isThere(pid int) bool { return syscall.Kill(pid, 0) == nil }

// If the program that is to judge the canaries does not exist, the roll is refused before anything
// is replaced.
func TestCanaryCheck_MissingProgramIsRefused(t *testing.T) {
	g := runners("web", 1)
	h := launch(t, g).ready()
	g.Roll = launcher.RollConfig{Canary: 1, Check: launcher.CanaryCheck{Command: []string{"/no/such/judge"}}}
	var rule *launcher.ConfigError
	if err := h.Roll(context.Background(), g, "test"); !errors.As(err, &rule) || rule.Field != "Roll.Check.Command" {
		t.Errorf("Roll: %v", err)
	}
}
