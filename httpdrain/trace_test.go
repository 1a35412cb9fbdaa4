package httpdrain_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// In a traced scope, reports name requests and hijacked connections by method, route and client,
// and the call of Serve by its line. The DrainError that Wait returns contains the stacks of the
// handlers.
func TestTrace_ReportsNameRequestsAndContainHandlerStacks(t *testing.T) {
	t.Setenv("CTXSHUTDOWN_TRACE", "1")
	entered, leave := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) { stuckHandler(entered, leave) })
	mux.HandleFunc("/chat", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			<-leave
			conn.Close()
		}()
	})
	mux.HandleFunc("/ended", ok)
	v := start(t, handler(mux.ServeHTTP), httpdrain.WithRoute(func(method, path string) string {
		_, pattern := mux.Handler(httpRequest(method, path))
		return pattern
	}))
	ended := dial(t, v.addr)
	ended.send(strings.Replace(get, "/", "/ended", 1))
	ended.readResponse(200, "ok")
	var clients []string
	for _, path := range []string{"/orders/1", "/orders/2", "/chat"} {
		p := dial(t, v.addr)
		p.send(strings.Replace(get, "/", path, 1))
		clients = append(clients, p.LocalAddr().String())
		if path != "/chat" {
			<-entered
		}
	}
	// The guard of the request /chat is released after that of the hijacked connection was
	// acquired, and a request stays in the list of its connection a little longer than its guard.
	for !strings.Contains(v.s.GuardReport().String(), "http/hijacked") || v.s.GuardCount() > 5 || len(v.s.GuardReport().Requests()) > 0 {
		runtime.Gosched()
	}
	var got []string
	for _, e := range v.s.GuardReport().Entries() {
		site, _, _ := strings.Cut(e.Site, ".go:")
		got = append(got, fmt.Sprintf("%s ×%d at %s", e.Path, e.Count, site))
	}
	slices.Sort(got)
	want := []string{
		" ×1 at main_test", // the guard that startOn has acquired
		"http ×1 at GET /orders/{id} from " + clients[0],
		"http ×1 at GET /orders/{id} from " + clients[1],
		"http ×1 at main_test", // the guard of the call of Serve
		"http/hijacked ×1 at GET /chat (hijacked) from " + clients[2],
	}
	slices.Sort(want) // sort both lists, because the second client may have the lower port
	testkit.Equal(t, "guards", got, want)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	// A handler that has begun might not block yet, and the goroutine of the idle connection might
	// not have left its handler. So repeat Wait until both have happened.
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		var drain *ctxshutdown.DrainError
		if err := v.s.Completion().Wait(ctx); !errors.As(err, &drain) {
			t.Fatalf("Wait returned %v, want a DrainError", err)
		}
		handlers := strings.Contains(drain.Stacks, "2 goroutines of http:") && strings.Count(drain.Stacks, "httpdrain_test.stuckHandler") == 1
		// The stacks have two groups: the two handlers, and the goroutine that the handler of /chat
		// has started.
		if handlers && strings.Count(drain.Stacks, " of http:") == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("want the stacks of two handlers and of the goroutine that one has started, got:\n%s", drain.Stacks)
			break
		}
	}
	v.s.Shutdown()
	close(leave)
	v.drained()
}

func httpRequest(method, path string) *http.Request {
	r, _ := http.NewRequest(method, path, nil)
	return r
}

func stuckHandler(entered chan<- struct{}, leave <-chan struct{}) {
	entered <- struct{}{}
	<-leave
}

// A report names the line that has called ListenAndServe, from which the guard of Serve is five
// calls away.
func TestTrace_ReportNamesCallerOfListenAndServe(t *testing.T) {
	t.Setenv("CTXSHUTDOWN_TRACE", "1")
	s := ctxshutdown.New(context.Background())
	done := make(chan error)
	var line int
	go func() {
		_, _, line, _ = runtime.Caller(0)
		done <- httpdrain.ListenAndServe(s, &http.Server{Addr: "127.0.0.1:0"}, httpdrain.WithLogger(slog.New(slog.DiscardHandler)))
	}()
	var entries []ctxshutdown.GuardEntry
	for len(entries) == 0 { // the guard is counted a moment before it is listed
		runtime.Gosched()
		entries = s.GuardReport().Entries()
	}
	s.Shutdown()
	testkit.Equal(t, "error of ListenAndServe", <-done, nil)
	testkit.Equal(t, "site", entries[0].Site, fmt.Sprintf("trace_test.go:%d", line+1))
}
