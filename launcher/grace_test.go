//go:build unix

package launcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/client"
)

// drainTimes contains the times that a draining process knows, such as its deadline.
type drainTimes struct {
	Received, Deadline time.Time
	Moved              time.Time // the deadline of the context after it has moved; zero if it has not moved
	Requested          time.Time // when the process requested more time; zero if it did not
}

func init() {
	// This process writes its deadlines to the file args[0]. If there is another argument, a
	// duration, it requests that much more time. It waits until the deadline of its context moves.
	roles["reads its deadline"] = func(args []string) {
		life, err := client.Serve()
		if err != nil {
			panic(err)
		}
		defer life.Close()
		life.Readiness.Set(client.Ready, "")
		life.Shutdown.Run(context.Background(), func(ctx context.Context) error {
			var t drainTimes
			t.Received = time.Now() // the launcher has sent the request to stop a little earlier
			t.Deadline, _ = ctx.Deadline()
			writeTimes(args[0], t)
			if len(args) > 1 {
				d, err := time.ParseDuration(args[1])
				if err != nil {
					panic(err)
				}
				t.Requested = time.Now()
				life.Shutdown.RequestMoreTime(d)
			}
			for ctx.Err() == nil {
				if moved, _ := ctx.Deadline(); !moved.Equal(t.Deadline) {
					t.Moved = moved
					writeTimes(args[0], t)
					break
				}
				time.Sleep(time.Millisecond)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}
}

func writeTimes(path string, t drainTimes) {
	text, err := json.Marshal(t)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		panic(err)
	}
}

// awaitTimes waits until the function want accepts the times in the file at path, and returns them.
func awaitTimes(t *testing.T, path string, want func(drainTimes) bool) (got drainTimes) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tooLong)
	defer cancel()
	for ctx.Err() == nil {
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err == nil && want(got) {
			return got
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("the process does not write it: %+v", got)
	return got
}

// between fails the test unless the time got is from..to. Tests cannot expect an exact time,
// because messages between processes take time.
func between(t *testing.T, what string, got, from, to time.Time) {
	t.Helper()
	// Messages contain durations in whole milliseconds, so a time can differ by this much.
	const rounding = 2 * time.Millisecond
	if got.Before(from.Add(-rounding)) || got.After(to.Add(rounding)) {
		t.Errorf("%s: %v, want %v to %v", what, got, from, to)
	}
}

// In the process, the context of the drain has the deadline at which the launcher begins to end the
// process by signals.
func TestGracePeriod_DrainContextInProcessHasDeadlineOfLauncher(t *testing.T) {
	const grace, most = 20 * time.Minute, time.Hour
	start := func(t *testing.T, enforced bool, args ...string) (h *harness, path string) {
		path = filepath.Join(t.TempDir(), "told")
		g := group("web", 1, "reads its deadline", append([]string{path}, args...)...)
		g.Shutdown.Grace, g.Shutdown.Max, g.Shutdown.GraceEnforced = grace, most, enforced
		g.Shutdown.SIGTERMTimeout = time.Millisecond
		return launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: 30 * time.Minute}).ready(), path
	}
	stop := func(t *testing.T, h *harness) (asked time.Time) {
		if err := h.StopProcess("web-1", launcher.Stop{NoReplacement: true}); err != nil {
			t.Fatal(err)
		}
		return h.waitForState("web-1", launcher.ShutdownRequested).Time
	}
	kill := func(h *harness) { h.Force(errors.New("the test is over")); h.waitForEnd("web-1") }
	first := func(drainTimes) bool { return true }
	moved := func(t drainTimes) bool { return !t.Moved.IsZero() }

	for _, c := range []struct {
		name     string
		enforced bool
		left     time.Duration
	}{{"the maximum", false, most}, {"the end of an enforced grace period", true, grace}} {
		t.Run(c.name, func(t *testing.T) {
			h, path := start(t, c.enforced)
			asked := stop(t, h)
			got := awaitTimes(t, path, first)
			between(t, "deadline", got.Deadline, asked.Add(c.left), got.Received.Add(c.left))
			kill(h)
		})
	}
	t.Run("a request for more time is granted", func(t *testing.T) {
		h, path := start(t, true, "40m")
		stop(t, h)
		got := awaitTimes(t, path, moved)
		between(t, "deadline", got.Moved, got.Requested.Add(40*time.Minute), time.Now().Add(40*time.Minute))
		h.readUntil("the grant", func(e launcher.Event) bool { return e.Kind == launcher.Extension })
		kill(h)
	})
	t.Run("a request for more time is cut to the maximum", func(t *testing.T) {
		h, path := start(t, true, "2h")
		asked := stop(t, h)
		got := awaitTimes(t, path, moved)
		between(t, "deadline", got.Moved, asked.Add(most), got.Received.Add(most))
		kill(h)
	})
	t.Run("the launcher is stopped, and has less time", func(t *testing.T) {
		h, path := start(t, false)
		stop(t, h)
		awaitTimes(t, path, first)
		from := time.Now()
		h.Shutdown()
		got := awaitTimes(t, path, moved)
		const left = 30 * time.Minute / 5 * 4
		between(t, "deadline", got.Moved, from.Add(left), time.Now().Add(left))
		kill(h)
	})
}
