package httpdrain_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

func probe(h http.Handler, method, accept string) string {
	r := httptest.NewRequest(method, "/", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", w.Header().Get("Content-Type"), " ", w.Body)
}

func TestReady_FailsFromLameDuckOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		var got []string
		err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
			ready, live := httpdrain.Ready(s), httpdrain.Live(s)
			probeBoth := func() { got = append(got, probe(ready, "GET", "*/*"), probe(live, "GET", "*/*")) }
			probeBoth()
			cancel() // the end of the context makes Run begin the shutdown
			synctest.Wait()
			if s.Err() != nil {
				t.Error("the lame duck phase was skipped")
			}
			probeBoth()
			got = append(got, probe(ready, "GET", "application/json"))
			time.Sleep(4 * time.Second) // the lame duck phase has ended
			probeBoth()
			<-s.Work().Done() // the soft phase has ended
			probeBoth()
			return nil
		}, graceful.WithLameDuck(3*time.Second), graceful.WithSignals(), graceful.WithOutput(io.Discard))
		if graceful.ExitCode(err) != 2 { // the drain was completed only after Force
			t.Errorf("Run: %v", err)
		}
		const text = " text/plain; charset=utf-8 "
		want := []string{
			"200" + text + "ready\n", "200" + text + "live\n",
			"503" + text + "lame duck\n", "200" + text + "live\n",
			"503 application/json {\"ready\":false,\"state\":\"lame duck\"}\n",
			"503" + text + "shutting down\n", "200" + text + "live\n",
			"503" + text + "shutting down\n", "503" + text + "ended\n",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestReady_FailsAfterStopOfScopeThatIsNotFromRun(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	ready, live := httpdrain.Ready(s), httpdrain.Live(s)
	got := []string{probe(ready, "HEAD", ""), probe(ready, "POST", ""), probe(live, "GET", "text/html, application/json")}
	s.Shutdown()
	got = append(got, probe(ready, "GET", ""), probe(live, "GET", ""))
	const text = " text/plain; charset=utf-8 "
	want := []string{"200" + text + "ready\n", "405" + text + "405 method not allowed\n", "200 application/json {\"live\":true,\"state\":\"live\"}\n",
		"503" + text + "complete\n", "503" + text + "ended\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A client that watches the debug page does not delay the drain, and stays connected until the
// drain ends.
func TestDebug_EventStreamDoesNotDelayDrain(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	v := start(t, &http.Server{Handler: mux})
	mux.Handle("/debug/shutdown", httpdrain.Debug(v.s, httpdrain.AllowRemote()))
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { close(entered); <-leave; ok(w, r) })
	watcher := dial(t, v.addr)
	watcher.send("GET /debug/shutdown HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")
	r, err := http.ReadResponse(watcher.in, nil)
	if err != nil || r.StatusCode != 200 {
		t.Fatal(r, err)
	}
	defer r.Body.Close()
	p := dial(t, v.addr)
	p.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n")
	<-entered
	v.s.Shutdown()
	close(leave)
	p.answered()
	v.drained()
	io.Copy(io.Discard, r.Body) // reads the event stream until the drain has closed its connection
}

func ExampleReady() {
	s := ctxshutdown.New(context.Background()) // in main, use the scope of graceful.Run
	admin := http.NewServeMux()                // the handler of a second server, on a port for operators
	admin.Handle("GET /readyz", httpdrain.Ready(s))
	admin.Handle("GET /livez", httpdrain.Live(s))

	get := func(path string) {
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Print(path, ": ", w.Code, " ", w.Body)
	}
	g := s.Guard()
	get("/readyz")
	s.Shutdown()
	get("/readyz")
	get("/livez")
	g.Release()
	// Output:
	// /readyz: 200 ready
	// /readyz: 503 shutting down
	// /livez: 200 live
}
