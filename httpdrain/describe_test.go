package httpdrain_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A scope that a handler creates is not part of its request, although the context of the request is
// above it. A server without a request waits for its connections.
func TestSummary_CountsScopesOfHandlersSeparately(t *testing.T) {
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
	if got := v.s.GuardReport().Summary(); !strings.HasPrefix(got, "1 request, (unnamed) ×1 and http/export ×1, oldest ") {
		t.Errorf("with a request, the summary is %q", got)
	}
	close(leave)
	p.receives(200, "ok")
	want := "1 connection and (unnamed) ×1" // soon after the client has received the response
	for end := time.Now().Add(20 * time.Second); v.s.GuardReport().Summary() != want && time.Now().Before(end); {
		runtime.Gosched()
	}
	testkit.Equal(t, "summary without a request", v.s.GuardReport().Summary(), want)
}

// Without tracing, the page names the oldest request and its client, explains its words, and says how
// to learn the ages of other guards.
func TestDebug_NamesOldestRequestWithoutTracing(t *testing.T) {
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
