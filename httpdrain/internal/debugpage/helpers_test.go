package debugpage_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// A fakeProcess is a Process whose status the test sets.
type fakeProcess struct {
	mu       sync.Mutex
	status   graceful.Status
	watchers map[int]func(graceful.Status)
	n        int
}

func (p *fakeProcess) Status() graceful.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

func (p *fakeProcess) Watch(f func(graceful.Status)) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchers == nil {
		p.watchers = map[int]func(graceful.Status){}
	}
	p.n++
	n := p.n
	p.watchers[n] = f
	f(p.status)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, n)
	}
}

// watcherCount returns how many functions watch p.
func (p *fakeProcess) watcherCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watchers)
}

// enter puts p into a phase, which ends after d, and calls the watchers of p. If d is 0, the end of
// the phase is unknown.
func (p *fakeProcess) enter(phase graceful.Phase, d time.Duration, change ...func(*graceful.Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Phase, p.status.Since, p.status.Until = phase, time.Now(), time.Time{}
	if d > 0 {
		p.status.Until = p.status.Since.Add(d)
	}
	for _, f := range change {
		f(&p.status)
	}
	for _, f := range p.watchers {
		f(p.status)
	}
}

func child(s *ctxshutdown.Swansong, name string) *ctxshutdown.Swansong {
	c, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName(name))
	return c
}

func acquire(s *ctxshutdown.Swansong, n int) (release func()) {
	var guards []*ctxshutdown.Guard
	for range n {
		guards = append(guards, s.Guard())
	}
	return func() {
		for _, g := range guards {
			g.Release()
		}
	}
}

// localRequest returns a request from the local machine.
func localRequest(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "localhost:8080"
	return r
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, localRequest("GET", target))
	return w
}

func decode(t *testing.T, data string) (v struct {
	State    string
	Forced   bool
	Guards   int
	AtStop   int `json:"guards_at_stop"`
	Scopes   int
	Cause    string
	Filter   string
	Phase    *struct{ Name string }
	Blockers []struct {
		Path   string
		Guards int
		Scopes int
	}
	Tree     node
	Timeline struct {
		Points []struct{ Guards int }
		Marks  []struct{ Step string }
	}
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%v in %q", err, data)
	}
	return v
}

type node struct {
	Name, Path, Site, State string
	Guards, Scopes          int
	Children                []node
	Hidden                  *struct{ Rows, Scopes, Guards int }
}
