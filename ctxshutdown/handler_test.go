package ctxshutdown_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// admit is middleware for a server with BaseContext: it holds a guard for each request, or replies
// 503.
func admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, ok := ctxshutdown.Acquire(r.Context())
		if !ok {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		defer g.Release()
		next.ServeHTTP(w, r)
	})
}

// serve runs a server whose requests derive from s and returns its address.
func serve(t *testing.T, s *ctxshutdown.Swansong, h http.Handler) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, BaseContext: s.BaseContext}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + ln.Addr().String()
}

// answer is the response that a client received.
type answer struct {
	code int
	body string
	err  error
}

// get sends a request on a new connection.
func get(t *testing.T, url string) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
		if err != nil {
			got <- answer{err: err}
			return
		}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			got <- answer{err: err}
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		got <- answer{resp.StatusCode, string(body), err}
	}()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return got
}

func TestHandler_CompletesRequestDuringDrain(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("http"))
	entered, stopped := make(chan struct{}), make(chan struct{})
	failed := make(chan string, 10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		close(entered)
		<-stopped
		if ctx.Err() != nil {
			failed <- "has a context that ended at the stop"
		}
		more, ok := ctxshutdown.Acquire(ctx)
		if !ok {
			failed <- "cannot acquire a guard"
		}
		sub, cancel := ctxshutdown.WithCancel(ctx, ctxshutdown.WithName("query"))
		defer cancel()
		g, ok := sub.TryGuard()
		if !ok || sub.Err() != nil {
			failed <- "cannot open a child scope"
		}
		defer g.Release()
		timed, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		wrote := make(chan struct{})
		if !ctxshutdown.Go(timed, func(ctx context.Context) { defer close(wrote); io.WriteString(w, "all of it") }) {
			failed <- "cannot start a goroutine"
		} else {
			<-wrote
		}
		if n := s.GuardCount(); n < 3 {
			failed <- "holds guards that are not counted"
		}
		more.Release()
	})
	url := serve(t, s, admit(handler))

	got := get(t, url)
	<-entered
	done := s.Shutdown()
	if isResolved(done) {
		t.Error("the scope is complete while a request is in flight")
	}
	if report := s.GuardReport().String(); report != "1 guard: http ×1" {
		t.Errorf("the report of a request in flight: %q", report)
	}
	close(stopped)
	if err := done.Wait(context.Background()); err != nil {
		t.Error(err)
	}
	if a := <-got; a != (answer{200, "all of it", nil}) {
		t.Errorf("the client got %+v", a)
	}
	close(failed)
	for what := range failed {
		t.Errorf("a request in flight %s", what)
	}

	if a := <-get(t, url); a != (answer{503, "shutting down\n", nil}) {
		t.Errorf("after the drain, a client got %+v", a)
	}
}

// A new request that arrives during the drain is served. It is up to the listener, or to a handler
// that checks the scope, to refuse new requests.
func TestHandler_ServesNewRequestDuringDrain(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	url := serve(t, s, admit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope, _ := ctxshutdown.FromContext(r.Context())
		if scope.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		io.WriteString(w, scope.State().String())
	})))
	g := s.Guard()
	done := s.Shutdown()
	if a := <-get(t, url); a != (answer{200, "ShuttingDown", nil}) {
		t.Errorf("during the drain, a client got %+v", a)
	}
	g.Release()
	if err := done.Wait(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestHandler_ForceEndsRequest(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	entered := make(chan struct{})
	url := serve(t, s, admit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		http.Error(w, context.Cause(r.Context()).Error(), http.StatusServiceUnavailable)
	})))
	got := get(t, url)
	<-entered
	s.Shutdown()
	done := s.Force(errCause)
	if err := done.Wait(context.Background()); err != nil {
		t.Error(err)
	}
	if a := <-got; a != (answer{503, "the cause\n", nil}) {
		t.Errorf("the client got %+v", a)
	}
}

// If the handler acquires no guard, the context of the request ends as soon as the scope is
// stopped. See docs/internals/core.md#semantic-5.
func TestHandler_RequestWithoutGuardEndsWhenScopeStops(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	entered := make(chan struct{})
	url := serve(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		http.Error(w, context.Cause(r.Context()).Error(), http.StatusServiceUnavailable)
	}))
	got := get(t, url)
	<-entered
	if !isResolved(s.Shutdown()) {
		t.Error("Shutdown waits for a request without a guard")
	}
	if a := <-got; a != (answer{503, ctxshutdown.ErrShutdown.Error() + "\n", nil}) {
		t.Errorf("the client got %+v", a)
	}
}
