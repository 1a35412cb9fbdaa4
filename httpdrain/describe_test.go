package httpdrain_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A handler creates a scope from the context of its request. The summary names the guards of that
// scope and the request separately. If a server has no request, the summary counts its connections.
func TestSummary_CountsRequestAndScopeThatItsHandlerCreates(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		export, _ := ctxshutdown.WithCancel(r.Context(), ctxshutdown.WithName("export"))
		defer export.Guard().Release()
		close(entered)
		<-leave
		ok(w, r)
	}))
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	if got := v.s.GuardReport().Summary(); !strings.HasPrefix(got, "1 request, unnamed work ×1 and http/export ×1, oldest ") {
		t.Errorf("with a request, the summary is %q", got)
	}
	close(leave)
	p.readResponse(200, "ok")
	// The handler may return a little after the client has received the response. Until then, the
	// summary names its request.
	want := "1 connection and unnamed work ×1"
	for end := time.Now().Add(20 * time.Second); v.s.GuardReport().Summary() != want && time.Now().Before(end); {
		runtime.Gosched()
	}
	testkit.Equal(t, "summary without a request", v.s.GuardReport().Summary(), want)
}

// In a traced scope, the oldest work is never the call of Serve, which is as old as the server.
func TestSummary_NeverNamesCallOfServeAsOldestWork(t *testing.T) {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithTrace())
	ln := listenInMemory()
	done := make(chan error, 1)
	go func() { done <- httpdrain.Serve(s, &http.Server{}, ln) }()
	ln.dial(t)
	for end := time.Now().Add(20 * time.Second); !strings.HasPrefix(s.GuardReport().Summary(), "1 connection") && time.Now().Before(end); {
		runtime.Gosched()
	}
	testkit.Equal(t, "summary", s.GuardReport().Summary(), "1 connection")
	testkit.Equal(t, "error of the drain", s.Shutdown().Wait(context.Background()), nil)
	testkit.Equal(t, "error of Serve", <-done, nil)
}

// Without tracing, the page, its JSON and reports name the oldest twenty requests, each with its
// route, its client and its age. The page names no request twice.
func TestDebug_PageNamesRequestsEvenWithoutTracing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		mux := http.NewServeMux()
		mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) { <-leave })
		ln := listenInMemory()
		v := startOn(t, ln, &http.Server{Handler: mux})
		for i := range 25 {
			ln.dial(t).send(fmt.Sprintf("GET /orders/%d HTTP/1.1\r\nHost: test\r\n\r\n", i))
			time.Sleep(time.Second)
		}
		var want []ctxshutdown.RequestEntry
		for i := range 20 {
			want = append(want, ctxshutdown.RequestEntry{Request: "GET /orders/{id} from pipe", Age: time.Duration(25-i) * time.Second})
		}
		report := v.s.GuardReport()
		testkit.Equal(t, "requests", report.Requests(), want)
		text := "; requests: GET /orders/{id} from pipe for 25s, GET /orders/{id} from pipe for 24s, "
		if got := report.String(); !strings.Contains(got, text) || !strings.HasSuffix(got, " for 16s and 15 more") {
			t.Errorf("the report is %q", got)
		}
		logged := report.LogValue().String()
		if !strings.Contains(logged, "requests=GET /orders/{id} from pipe for 25s, ") || !strings.HasSuffix(logged, " for 23s and 22 more]") {
			t.Errorf("the log says %q", logged)
		}
		page := func(accept string) string {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Accept", accept)
			httpdrain.Debug(v.s, httpdrain.AllowRemote("*")).ServeHTTP(w, r)
			return w.Body.String()
		}
		html := page("text/html")
		testkit.Equal(t, "requests on the page", strings.Count(html, "GET /orders/{id} from pipe"), 20)
		for _, text := range []string{"<bdi>25 requests and unnamed work ×1</bdi>", `<span class="age" data-age="7000">7.0 s</span>`} {
			if !strings.Contains(html, text) {
				t.Errorf("the page does not contain %q", text)
			}
		}
		testkit.Equal(t, "requests in JSON", strings.Count(page("application/json"), `"request":"GET /orders/{id} from pipe"`), 20)
		close(leave)
	})
}

// Without tracing, the debug page names the oldest request and its client, explains its terms, and
// says how to make it show the ages of other guards.
func TestDebug_PageNamesOldestRequestEvenWithoutTracing(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
	})
	v := start(t, &http.Server{Handler: mux})
	p := dial(t, v.addr)
	p.send("GET /export HTTP/1.1\r\nHost: test\r\n\r\n")
	<-entered
	w := httptest.NewRecorder()
	httpdrain.Debug(v.s, httpdrain.AllowRemote("*")).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	for _, want := range []string{
		": GET /export from " + p.LocalAddr().String(),
		"A guard is a piece of work, such as a request,",
		"<code>ctxshutdown.WithTrace</code>",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the page does not say %q:\n%s", want, w.Body)
		}
	}
}
