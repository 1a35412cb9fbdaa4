package httpdrain_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
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
