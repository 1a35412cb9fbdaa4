package shutdowntest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
)

// A run is one run of a scenario.
//
//	scenario ──▶ draining ──the scenario has returned, all guards are released──▶ check ──▶ cleanups ──▶ end
//	                └──neither within the time limit──▶ the test fails, Force ──────────────▲
//
// Draining begins when the scope is stopped, when the scenario returns, or after an hour. The
// scenario runs in a goroutine of its own. So if the scenario hangs, the main goroutine of the
// bubble can still end and report the goroutines that are left.
type run struct {
	scenario func(t *testing.T, s *ctxshutdown.Swansong) func()
	within   time.Duration
	// The scope is stopped at the moment with this number, counted from 1: a moment is the time
	// before or after an operation on a guard. If the number is 0, the scope is not stopped at a
	// moment.
	stopAt int

	scope *ctxshutdown.Swansong

	mu      sync.Mutex // held while the scope is stopped, so that other goroutines continue only after the stop
	moments int        // how many points before or after an operation on a guard the goroutines have reached before the stop
	stop    string     // for messages: the moment at which the run stopped the scope; empty if it did not

	main, scenarioGoroutine goroutine // the goroutines that run the bubble and the scenario
	checked                 atomic.Bool
	reported                bool // the test was marked as failed because the drain did not end
}

const longest = time.Hour

// hangTimeout is how long a run may take in real time before the stacks of its goroutines are
// printed.
var hangTimeout = time.Minute

// watch prints the stacks of the goroutines of a run that takes too long in real time. While a
// goroutine waits for a mutex, the clock of the bubble stands still, so the time limits of the run
// are never reached. watch does not fail the test, because the run may only be slow. The -timeout
// of go test fails it.
func (r *run) watch(t *testing.T) (stop func() bool) {
	return time.AfterFunc(hangTimeout, func() {
		where := "the scope was being stopped"
		if r.mu.TryLock() { // use TryLock, because a goroutine that hangs may hold the lock
			r.mu.Unlock()
			where = r.where(t)
		}
		stuck := slices.DeleteFunc(traces(), func(trace string) bool {
			m := header.FindStringSubmatch(trace)
			return m == nil || m[3] == ""
		})
		fmt.Fprintf(os.Stderr, "shutdowntest: %s has run for %v; its clock may stand still because a goroutine waits for a mutex; %s\n\n%s\n",
			t.Name(), hangTimeout, where, strings.Join(stuck, "\n\n"))
	}).Stop
}

func (r *run) do(t *testing.T) {
	t.Helper()
	defer r.watch(t)()
	defer func() {
		t.Helper()
		switch e := recover().(type) {
		case nil:
		case error:
			// If goroutines are left when a bubble ends, synctest panics with an error that has no
			// type of its own. It is recognized by its text.
			if !strings.HasPrefix(e.Error(), "deadlock: ") {
				panic(e)
			}
			if !r.reported {
				t.Errorf("shutdowntest: these goroutines never end; %s\n\n%s", r.where(t), r.main.others())
			}
			t.FailNow()
		default:
			panic(e)
		}
	}()
	synctest.Test(t, r.bubble)
}

// where returns a text for a failure: at which point of the scenario the scope was stopped, and the
// go test command that runs the scenario with only that stop.
func (r *run) where(t *testing.T) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop == "" {
		return "the stop was made at the end of the scenario"
	}
	elements := strings.Split(t.Name(), "/")
	for i, e := range elements {
		elements[i] = "^" + regexp.QuoteMeta(e) + "$"
	}
	return fmt.Sprintf("the stop was made %s; to run it alone:\n\tgo test -run '%s'", r.stop, strings.Join(elements, "/"))
}

func (r *run) bubble(t *testing.T) {
	t.Helper()
	r.main = self()
	// Register this cleanup first, so that it runs last. It gives goroutines that are about to end
	// some time.
	t.Cleanup(func() { time.Sleep(r.within) })
	defer func() {
		t.Helper()
		if t.Failed() {
			t.Logf("shutdowntest: %s", r.where(t))
		}
	}()
	r.scope = ctxshutdown.New(context.WithValue(context.Background(), ctxkey.Hook{}, ctxkey.GuardHook(r.reach)))
	defer r.checked.Store(true)

	var check func()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		r.scenarioGoroutine = self()
		check = r.scenario(t, r.scope)
	}()
	hour := time.NewTimer(longest)
	select {
	case <-returned:
	case <-r.scope.Done():
	case <-hour.C:
	}
	hour.Stop()
	r.scope.Shutdown()

	limit, cancel := context.WithTimeout(context.Background(), r.within)
	defer cancel()
	ends := func(done <-chan struct{}) bool {
		select {
		case <-done:
			return true
		case <-limit.Done():
			return false
		}
	}
	switch {
	case !ends(returned):
		r.fail(t, "the scenario has not returned")
	// Ask for the completion again: if the scenario has acquired a guard after the stop, the scope
	// has a new completion, which waits for that guard.
	case !ends(r.scope.Completion().Done()):
		r.fail(t, "not drained")
	case check != nil:
		check()
	}
}

func (r *run) fail(t *testing.T, what string) {
	t.Helper()
	r.reported = true
	t.Errorf("shutdowntest: %s within %v of the stop: %v\n\n%s", what, r.within, r.scope.GuardReport(), r.main.others())
	r.scope.Force(errTooSlow)
}

var errTooSlow = errors.New("shutdowntest: the drain took too long")

// The scope calls reach before and after every operation on a guard. These are the moments of a
// run.
func (r *run) reach(m ctxkey.GuardEvent) {
	if r.countMoment(m) {
		return
	}
	r.letCheckRunFirst()
}

// countMoment counts a moment, and stops the scope if this is the chosen moment. It returns false
// if the scope was stopped by this call or before.
func (r *run) countMoment(m ctxkey.GuardEvent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scope.Err() != nil {
		return false
	}
	r.moments++
	if r.moments != r.stopAt {
		return true
	}
	r.stop = fmt.Sprintf("%v, at %s", m, caller())
	r.scope.Shutdown()
	return false
}

// letCheckRunFirst delays the goroutine that has released the last guard until the check has run.
// In a real process, main could exit now, and work that this goroutine does after the release would
// be lost.
//
// The delay consists of rounds. In each round, letCheckRunFirst reads the stacks of all goroutines,
// which makes the scheduler run each of them, on slow machines too. A clock would not. The delay
// ends as soon as the goroutines of the bubble and of the scenario are blocked: the check may need
// the delayed goroutine, for example for a lock that it holds. It also ends after a number of
// rounds, because a goroutine that polls is never blocked.
func (r *run) letCheckRunFirst() {
	// Do not delay the goroutine of the scenario: the check cannot run before the scenario has
	// returned, so the delay would be useless.
	if r.scope.State() != ctxshutdown.Complete || self() == r.scenarioGoroutine {
		return
	}
	for range 200 {
		runtime.Gosched()
		if r.checked.Load() || !anyRunning(r.main, r.scenarioGoroutine) {
			return
		}
	}
}

// caller returns the line of the code under test that called the operation on a guard at which the
// scope is stopped now, such as Guard or Release.
func caller() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs[:])])
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.goexit" || !more:
			return "the end of a goroutine that Go started"
		case !strings.HasPrefix(f.Function, corePackage):
			return fmt.Sprintf("%s:%d in %s", filepath.Base(f.File), f.Line, f.Function[strings.LastIndexByte(f.Function, '/')+1:])
		}
	}
}

const corePackage = "github.com/swansong-go/swansong/ctxshutdown."
