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
	"github.com/swansong-go/swansong/internal/probe"
)

// A run is one run of a scenario.
//
//	scenario ──the stop, its return, or an hour──▶ draining ──returned, and drained──▶ check ──▶ cleanups ──▶ over
//	                                                  └──time is up──▶ failed, and Force ─────────▲
//
// The scenario has a goroutine of its own: the main one of the bubble must be free to end, because what then remains can
// be found and told of, whereas a scenario that hangs could only be ended with the process.
type run struct {
	scenario func(t *testing.T, s *ctxshutdown.Swansong) func()
	within   time.Duration
	stopAt   int //  the moment at which it is stopped, from 1 on; 0: none

	scope *ctxshutdown.Swansong

	mu      sync.Mutex // held during the stop: who comes to a guard meanwhile comes after it
	moments int        // come to before the stop
	stop    string     // where it came; empty: at no moment

	main, own goroutine // of the bubble, and of the scenario
	checked   atomic.Bool
	told      bool // that the drain does not end
}

const longest = time.Hour

// patience is how long a run may take by the clock on the wall, before somebody is told where it is.
var patience = time.Minute

// watch tells where a run is that takes too long by the clock on the wall: that of the bubble stands still while somebody waits
// for a mutex, so that no limit is reached. It does not fail the test, which may just be slow; go test has a -timeout for that.
func (r *run) watch(t *testing.T) (stop func() bool) {
	return time.AfterFunc(patience, func() {
		where := "the stop is on its way"
		if r.mu.TryLock() { // who hangs may have it
			r.mu.Unlock()
			where = r.where(t)
		}
		stuck := slices.DeleteFunc(traces(), func(trace string) bool {
			m := header.FindStringSubmatch(trace)
			return m == nil || m[3] == ""
		})
		fmt.Fprintf(os.Stderr, "shutdowntest: %s has run for %v, and its clock may stand still, as for a mutex that nobody unlocks; %s\n\n%s\n",
			t.Name(), patience, where, strings.Join(stuck, "\n\n"))
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
			// The only way to hear of what remains in a bubble is its panic, which has no type of its own.
			if !strings.HasPrefix(e.Error(), "deadlock: ") {
				panic(e)
			}
			if !r.told {
				t.Errorf("shutdowntest: these goroutines never end; %s\n\n%s", r.where(t), r.main.others())
			}
			t.FailNow()
		default:
			panic(e)
		}
	}()
	synctest.Test(t, r.bubble)
}

// where says where the stop came, and how to have it come there again.
func (r *run) where(t *testing.T) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop == "" {
		return "the stop came at the end of the scenario"
	}
	elements := strings.Split(t.Name(), "/")
	for i, e := range elements {
		elements[i] = "^" + regexp.QuoteMeta(e) + "$"
	}
	return fmt.Sprintf("the stop came %s; that alone:\n\tgo test -run '%s'", r.stop, strings.Join(elements, "/"))
}

func (r *run) bubble(t *testing.T) {
	t.Helper()
	r.main = self()
	// The first cleanup is the last to run: who is on the way out may get there.
	t.Cleanup(func() { time.Sleep(r.within) })
	defer func() {
		t.Helper()
		if t.Failed() {
			t.Logf("shutdowntest: %s", r.where(t))
		}
	}()
	r.scope = ctxshutdown.New(context.WithValue(context.Background(), probe.Key{}, probe.Func(r.reach)))
	defer r.checked.Store(true)

	var check func()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		r.own = self()
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
	case !ends(r.scope.Completion().Done()): // asked for now: the scenario may have taken a guard on its last yards
		r.fail(t, "not drained")
	case check != nil:
		check()
	}
}

func (r *run) fail(t *testing.T, what string) {
	t.Helper()
	r.told = true
	t.Errorf("shutdowntest: %s within %v of the stop: %v\n\n%s", what, r.within, r.scope.GuardReport(), r.main.others())
	r.scope.Force(errLate)
}

var errLate = errors.New("shutdowntest: the drain has taken too long")

// reach is the probe of the scope.
func (r *run) reach(m probe.Moment) {
	if r.running(m) {
		return
	}
	r.goLast()
}

// running counts a moment, stops the scope if it is the one, and reports whether the scope has not been told to stop.
func (r *run) running(m probe.Moment) bool {
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

// goLast keeps its caller back while the check is on its way, if everything has drained: the process could be over now.
//
// The check may also need the caller, which may hold a lock, for example. So it lasts only while those whom the process
// would wait for do not wait themselves, and not for ever, should they wait by asking again and again. There is no wait by
// the clock in it: to look at the goroutines is to have the scheduler stop each of them, which gets those on slow machines
// on, too.
func (r *run) goLast() {
	// What the scenario itself does comes before its return, and the check after it.
	if r.scope.State() != ctxshutdown.Complete || self() == r.own {
		return
	}
	for range 200 {
		runtime.Gosched()
		if r.checked.Load() || !onTheirWay(r.main, r.own) {
			return
		}
	}
}

// caller says who has come to a guard.
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
