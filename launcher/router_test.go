//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// A table is a router that takes down what it is told.
type table struct {
	mu    sync.Mutex
	told  []string
	here  map[string]launcher.Instance
	add   func(i launcher.Instance) error // nil: yes
	moved chan string                     // what it was told, if anybody listens
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
	r.told = append(r.told, what)
	r.mu.Unlock()
	if r.moved != nil {
		r.moved <- what
	}
}

// dial connects to somebody who is there, and who is not removed before that is done.
func (r *table) dial(ctx context.Context) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.here {
		return new(net.Dialer).DialContext(ctx, "unix", i.Socket)
	}
	return nil, errors.New("nobody is in routing")
}

// A process leaves routing before it is asked to stop, and is asked no sooner than the delay later.
func TestRoutingIsLeftFirst(t *testing.T) {
	const delay = 300 * time.Millisecond
	r := &table{moved: make(chan string, 10)}
	g := runners("web", 1, "-v")
	g.Shutdown.DeregisterDelay = delay
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: r}).ready()
	equal(t, "first", <-r.moved, "add web-1")
	if err := h.StopProcess("web-1", launcher.Stop{NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	equal(t, "then", <-r.moved, "remove web-1")
	left := time.Now()
	st := h.ends("web-1")
	equal(t, "outcome", st.Outcome, launcher.Clean)
	if got := st.Ended.Sub(left); got < delay {
		t.Errorf("it ended %v after it had left routing, and it is to be asked after %v", got, delay)
	}
}

// A process that the router has not taken in is not counted on: nobody is stopped for it.
func TestOnlyRoutedProcessesCount(t *testing.T) {
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
		t.Errorf("web-1 is %v (%v) before the router has its successor", st.State, err)
	}
	close(refuse)
	if err := <-rolled; err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	equal(t, "what the router was told", r.told, []string{"add web-1", "add web-2", "remove web-1"})
}

// A process that crashes leaves routing, too.
func TestCrashedProcessesLeaveRouting(t *testing.T) {
	r := &table{moved: make(chan string, 10)}
	g := runners("web", 1, "--behavior", "crash")
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: r}).ready()
	equal(t, "first", <-r.moved, "add web-1")
	kill(t, h.running("web")[0].PID)
	equal(t, "then", <-r.moved, "remove web-1")
	equal(t, "outcome", h.ends("web-1").Outcome, launcher.Crash)
	equal(t, "then", <-r.moved, "add web-2")
}
