package debugpage_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain/internal/debugpage"
	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

// A streamReader is the client of a stream. The handler blocks until the client has read each
// write.
type streamReader struct {
	r     *io.PipeReader
	lines *bufio.Reader
	leave context.CancelFunc
	done  chan struct{} // closed when the handler has returned
}

type pipeResponseWriter struct {
	*io.PipeWriter
	header http.Header
}

func (w pipeResponseWriter) Header() http.Header { return w.header }
func (w pipeResponseWriter) WriteHeader(int)     {}
func (w pipeResponseWriter) FlushError() error   { return nil }

func openStream(h http.Handler, req *http.Request) *streamReader {
	ctx, cancel := context.WithCancel(req.Context())
	r, w := io.Pipe()
	s := &streamReader{r: r, lines: bufio.NewReader(r), leave: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer w.Close()
		h.ServeHTTP(pipeResponseWriter{w, http.Header{}}, req.WithContext(ctx))
	}()
	return s
}

// next returns the name and the data of the next event, or two empty strings after the last one. It
// skips comments.
func (s *streamReader) next(t *testing.T) (event, data string) {
	t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err == io.EOF {
			return "", ""
		}
		if err != nil {
			t.Fatal(err)
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			event = value
		case "data":
			data += value + "\n"
		case "":
			if event != "" {
				return event, strings.TrimSuffix(data, "\n")
			}
		case "retry":
		default:
			t.Fatalf("unexpected line %q in the stream of events", line)
		}
	}
}

// all reads to the end of the stream. It returns the state and the number of guards in each event,
// and then the last event.
func (s *streamReader) all(t *testing.T) (states []string) {
	for {
		switch event, data := s.next(t); event {
		case "":
			return states
		case "state":
			v := decode(t, data)
			states = append(states, fmt.Sprint(v.State, " ", v.Guards))
		default:
			states = append(states, event+" "+data)
		}
	}
}

// A stream sends an event for each change, delays neither the release of guards nor the drain, and
// ends when the scope is complete.
func TestStream_ShowsDrainWithoutDelayingIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{}
		s := ctxshutdown.New(context.Background())
		calls := 0
		h := debugpage.New(s, p, debugpage.Options{LocalOnly: true, OnStream: func(http.ResponseWriter, *http.Request) { calls++ }})
		a, b := s.Guard(), s.Guard()
		stream := openStream(h, localRequest("GET", "/events"))
		got := make(chan []string)
		go func() { got <- stream.all(t) }()
		time.Sleep(10 * time.Second)
		if s.GuardCount() != 2 || calls != 1 || p.watcherCount() != 1 {
			t.Errorf("%d guards, want 2; %d calls of OnStream, want 1; %d watchers, want 1", s.GuardCount(), calls, p.watcherCount())
		}
		p.enter(graceful.LameDuck, 3*time.Second)
		time.Sleep(3 * time.Second)
		p.enter(graceful.Soft, 10*time.Second)
		s.Shutdown()
		time.Sleep(time.Second)
		a.Release()
		// Release b between two of the snapshots that the stream takes at intervals. Such a
		// snapshot could otherwise be taken in the middle of the release.
		time.Sleep(1500 * time.Millisecond)
		b.Release()
		synctest.Wait()
		select {
		case <-stream.done: // the stream has ended with the completion of the scope
		default:
			t.Error("the scope is complete, but the stream has not ended")
			stream.leave()
		}
		want := []string{"Running 2", "Running 2", "ShuttingDown 2", "ShuttingDown 1", "Complete 0", "end complete"}
		states := slices.Compact(<-got) // the stream repeats a state when only the time axis advances
		testkit.Equal(t, "events", states, slices.Compact(want))
		if p.watcherCount() != 0 {
			t.Error("the stream has ended but still watches the process")
		}
	})
}

// Force ends a stream. A client that connects again receives one state and the last event.
func TestStream_EndsOnForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := debugpage.New(s, nil, debugpage.Options{LocalOnly: true})
		g := s.Guard()
		s.Shutdown()
		stream := openStream(h, localRequest("GET", "/events"))
		if event, _ := stream.next(t); event != "state" {
			t.Fatalf("event %q", event)
		}
		s.Force(nil)
		want := []string{"ShuttingDown 1", "end forced"}
		testkit.Equal(t, "events", stream.all(t), want)
		again := openStream(h, localRequest("GET", "/events"))
		testkit.Equal(t, "events of another stream", again.all(t), want)
		g.Release()
		last := openStream(h, localRequest("GET", "/events"))
		testkit.Equal(t, "events of the last stream", last.all(t), []string{"Complete 0", "end complete"})
	})
}

// A request whose context is derived from Work, and so ends with the scope, still receives the last
// event.
func TestStream_SendsLastEventIfRequestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // repeated because select chooses at random between the ready cases
			s := ctxshutdown.New(context.Background())
			h := debugpage.New(s, nil, debugpage.Options{LocalOnly: true})
			stream := openStream(h, localRequest("GET", "/events").WithContext(s.Work()))
			if event, _ := stream.next(t); event != "state" {
				t.Fatalf("event %q", event)
			}
			s.Shutdown()
			if diff := cmp.Diff([]string{"Complete 0", "end complete"}, stream.all(t)); diff != "" {
				t.Fatalf("events (-want +got):\n%s", diff)
			}
		}
	})
}

// A slow reader gets the newest state, not the intermediate ones, and does not delay the shutdown.
func TestStream_SkipsStatesForSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := debugpage.New(s, nil, debugpage.Options{LocalOnly: true})
		stream := openStream(h, localRequest("GET", "/events"))
		synctest.Wait()
		var release []func()
		for range 100 {
			release = append(release, acquire(s, 1))
			time.Sleep(time.Second) // the client has still not read the first event
		}
		var states []string
		for range 2 {
			_, data := stream.next(t)
			states = append(states, fmt.Sprint(decode(t, data).Guards))
		}
		testkit.Equal(t, "guards", states, []string{"0", "100"})
		time.Sleep(time.Second)
		for _, f := range release {
			f()
		}
		s.Shutdown().Wait(context.Background()) // the shutdown completes although the client does not read
		stream.r.Close()                        // the client disconnects
		<-stream.done
	})
}

// A stream sends at most four events per second, and none if nothing changes.
func TestStream_LimitsEventRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		p := &fakeProcess{}
		h := debugpage.New(s, p, debugpage.Options{LocalOnly: true})
		defer s.Guard().Release()
		p.enter(graceful.Soft, time.Hour)
		s.Shutdown()
		var mu sync.Mutex
		events := 0
		stream := openStream(h, localRequest("GET", "/events"))
		go func() {
			for {
				if event, _ := stream.next(t); event == "" {
					return
				}
				mu.Lock()
				events++
				mu.Unlock()
			}
		}()
		count := func() (n int) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			n, events = events, 0
			return n
		}
		time.Sleep(10 * time.Second)
		if n := count(); n != 1 {
			t.Errorf("%d events without a change, want only the first", n)
		}
		for i := range 10_000 {
			g := s.Guard()
			if i%2 == 0 {
				defer g.Release()
			} else {
				g.Release()
			}
			p.enter(graceful.Soft, time.Hour, func(st *graceful.Status) { st.Extended += time.Second })
			time.Sleep(time.Millisecond)
		}
		if n := count(); n < 20 || n > 42 {
			t.Errorf("%d events in ten seconds of change, want about 40", n)
		}
		stream.leave()
		<-stream.done
	})
}

// The handler starts no goroutine: neither when it is created, nor for a request.
func TestHandler_StartsNoGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := ctxshutdown.New(context.Background())
	release := acquire(s, 3)
	before := goleak.IgnoreCurrent()
	h := debugpage.New(s, nil, debugpage.Options{LocalOnly: true})
	get(h, "/")
	get(h, "/?format=json")
	goleak.VerifyNone(t, before)

	mux := http.NewServeMux()
	mux.Handle("GET /debug/shutdown", h)
	srv := httptest.NewServer(mux)
	client := srv.Client()
	req, _ := http.NewRequest("GET", srv.URL+"/debug/shutdown", nil)
	req.Header.Set("Accept", "text/event-stream")
	var bodies []io.ReadCloser
	for range 3 {
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, resp.Body)
	}
	bodies[0].Close() // the client disconnects before the scope is complete
	s.Shutdown()
	release()
	for _, body := range bodies[1:] {
		b, err := io.ReadAll(body) // the stream ends when the scope is complete
		if err != nil || !bytes.HasSuffix(b, []byte("event: end\ndata: complete\n\n")) {
			t.Errorf("%v after %q", err, b)
		}
		body.Close()
	}
	client.CloseIdleConnections()
	srv.Close()
}
