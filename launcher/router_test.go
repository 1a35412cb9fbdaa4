//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// A table is a router that records its calls.
type table struct {
	mu    sync.Mutex
	calls []string
	here  map[string]launcher.Instance
	add   func(i launcher.Instance) error // the result of the method Add; if the field is nil, Add accepts every process
	moved chan string                     // receives the calls; nil if the test does not read them
}

func (r *table) Add(_ context.Context, i launcher.Instance) error {
	if r.add != nil {
		if err := r.add(i); err != nil {
			return err
		}
	}
	r.note("add "+i.ID, func() { r.here[i.ID] = i })
	return nil
}

func (r *table) Remove(_ context.Context, i launcher.Instance) error {
	r.note("remove "+i.ID, func() { delete(r.here, i.ID) })
	return nil
}

func (r *table) note(what string, change func()) {
	r.mu.Lock()
	if r.here == nil {
		r.here = map[string]launcher.Instance{}
	}
	change()
	r.calls = append(r.calls, what)
	r.mu.Unlock()
	if r.moved != nil {
		r.moved <- what
	}
}

// dial connects to a process that is registered, and keeps it registered until the connection is
// made.
func (r *table) dial(ctx context.Context) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.here {
		return new(net.Dialer).DialContext(ctx, "unix", i.Socket)
	}
	return nil, errors.New("nobody is in routing")
}

// A process is removed from routing before it is asked to stop. It is asked only after the
// deregister delay.
func TestRouter_RemovesProcessBeforeStop(t *testing.T) {
	const delay = 300 * time.Millisecond
	r := &table{moved: make(chan string, 10)}
	g := runners("web", 1, "-v")
	g.Shutdown.DeregisterDelay = delay
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: r}).ready()
	testkit.Equal(t, "first call", <-r.moved, "add web-1")
	if err := h.StopProcess("web-1", launcher.Stop{NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "next call", <-r.moved, "remove web-1")
	left := time.Now()
	st := h.waitForEnd("web-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
	if got := st.Ended.Sub(left); got < delay {
		t.Errorf("ended %v after it was removed, want at least %v", got, delay)
	}
}

// A process that the router has not accepted does not count as available, so no other process is
// stopped for it.
func TestRouter_UnroutedProcessDoesNotCountAsAvailable(t *testing.T) {
	refuse := make(chan struct{})
	asked := make(chan struct{}, 100)
	r := &table{add: func(i launcher.Instance) error {
		if i.ID == "web-2" {
			select {
			case <-refuse:
			default:
				asked <- struct{}{}
				return errors.New("not yet")
			}
		}
		return nil
	}}
	g := runners("web", 1)
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: r}).ready()
	rolled := make(chan error, 1)
	go func() { rolled <- h.Restart(context.Background(), "web", "test") }()
	for range 3 {
		<-asked
	}
	st, err := h.Process("web-1")
	if err != nil || st.State != launcher.Ready {
		t.Errorf("web-1 is %v (%v) before its replacement is registered", st.State, err)
	}
	close(refuse)
	if err := <-rolled; err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	testkit.Equal(t, "calls of the router", r.calls, []string{"add web-1", "add web-2", "remove web-1"})
}

// A process that crashes is removed from routing.
func TestRouter_RemovesCrashedProcess(t *testing.T) {
	r := &table{moved: make(chan string, 10)}
	g := runners("web", 1, "--behavior", "crash")
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: r}).ready()
	testkit.Equal(t, "first call", <-r.moved, "add web-1")
	kill(t, h.running("web")[0].PID)
	testkit.Equal(t, "next call", <-r.moved, "remove web-1")
	testkit.Equal(t, "outcome", h.waitForEnd("web-1").Outcome, launcher.Crash)
	testkit.Equal(t, "next call", <-r.moved, "add web-2")
}
