package httpdrain_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// On HTTP/1, "PRI * HTTP/2.0" is a request that a handler may answer by hijacking the connection.
func TestServe_HTTP2PrefaceCanBeHijacked(t *testing.T) {
	hijacked := make(chan net.Conn)
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		defer close(hijacked)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
		}
		hijacked <- conn
	}))
	p := dial(t, v.addr)
	p.send("PRI * HTTP/2.0\r\n\r\n")
	conn := <-hijacked
	if conn == nil {
		t.Fatal("the handler could not hijack the connection")
	}
	v.s.Shutdown()
	<-v.drains
	if report := v.s.GuardReport().String(); !strings.Contains(report, "http/hijacked ×1") {
		t.Errorf("the hijacked connection is not in the report: %s", report)
	}
	conn.Close()
	v.drained()
}

// If a handler misuses the ResponseWriter, the response is the same as with net/http alone, and the
// log names the same line of the handler.
func TestResponseWriter_RespondsAsNetHTTPIfHandlerMisusesIt(t *testing.T) {
	cases := map[string]func(w http.ResponseWriter){
		"WriteHeader twice":                 func(w http.ResponseWriter) { w.WriteHeader(404); w.WriteHeader(200) },
		"WriteHeader after Write":           func(w http.ResponseWriter) { w.Write(nil); w.WriteHeader(404) },
		"WriteHeader after WriteString":     func(w http.ResponseWriter) { io.WriteString(w, "hello"); w.WriteHeader(404) },
		"WriteHeader after Flush":           func(w http.ResponseWriter) { w.(http.Flusher).Flush(); w.WriteHeader(404) },
		"WriteHeader after FlushError":      func(w http.ResponseWriter) { http.NewResponseController(w).Flush(); w.WriteHeader(404) },
		"WriteHeader after ReadFrom":        func(w http.ResponseWriter) { io.Copy(w, onlyReader{strings.NewReader("hello")}); w.WriteHeader(404) },
		"WriteHeader after empty ReadFrom":  func(w http.ResponseWriter) { io.Copy(w, onlyReader{strings.NewReader("")}); w.WriteHeader(404) },
		"WriteHeader after early hints":     func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(404) },
		"early hints after WriteHeader":     func(w http.ResponseWriter) { w.WriteHeader(404); w.WriteHeader(103) },
		"WriteHeader after 101":             func(w http.ResponseWriter) { w.WriteHeader(101); w.WriteHeader(404) },
		"WriteHeader after an invalid one":  func(w http.ResponseWriter) { recovers(func() { w.WriteHeader(0) }); w.WriteHeader(404) },
		"WriteHeader after a large one":     func(w http.ResponseWriter) { recovers(func() { w.WriteHeader(1000) }); w.WriteHeader(404) },
		"Error after WriteHeader":           func(w http.ResponseWriter) { w.WriteHeader(404); http.Error(w, "oops", 500) },
		"WriteHeader after Hijack":          func(w http.ResponseWriter) { hijack(w); w.WriteHeader(404) },
		"Write after Hijack":                func(w http.ResponseWriter) { hijack(w); write(w, w.Write) },
		"WriteString after Hijack":          func(w http.ResponseWriter) { hijack(w); io.WriteString(w, "hello") },
		"Write of no bytes after Hijack":    func(w http.ResponseWriter) { hijack(w); w.Write(nil) },
		"a second Hijack after the first":   func(w http.ResponseWriter) { hijack(w); hijack(w) },
		"WriteHeader deep below middleware": func(w http.ResponseWriter) { w.WriteHeader(404); nested(func() { w.WriteHeader(500) }, 20) },
	}
	for name, misuse := range cases {
		t.Run(name, func(t *testing.T) {
			var logs, responses []string
			for _, drained := range []bool{false, true} {
				var b bytes.Buffer
				left := make(chan struct{})
				srv := handler(func(w http.ResponseWriter, r *http.Request) { defer close(left); misuse(w) })
				srv.ErrorLog = log.New(&b, "", 0)
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				var end func()
				if drained {
					v := startOn(t, ln, srv)
					end = func() { v.s.Shutdown(); v.drained() }
				} else {
					done := make(chan error, 1)
					go func() { done <- srv.Serve(ln) }()
					end = func() { srv.Close(); <-done }
				}
				p := dial(t, ln.Addr().String())
				p.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
				got, err := io.ReadAll(p.in)
				if err != nil {
					t.Error(err)
				}
				<-left
				end()
				header, _, _ := strings.Cut(string(got), "\r\nDate: ")
				logs, responses = append(logs, b.String()), append(responses, header)
			}
			if diff := cmp.Diff(logs[0], logs[1]); diff != "" {
				t.Errorf("log (-net/http +httpdrain):\n%s", diff)
			}
			if diff := cmp.Diff(responses[0], responses[1]); diff != "" {
				t.Errorf("response (-net/http +httpdrain):\n%s", diff)
			}
		})
	}
}

// An onlyReader has no method WriteTo, so that io.Copy calls ReadFrom.
type onlyReader struct{ io.Reader }

func recovers(f func()) { defer func() { recover() }(); f() }

func hijack(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		conn.Close()
	}
}

func write(w http.ResponseWriter, f func([]byte) (int, error)) {
	if n, err := f([]byte("hello")); n != 0 || err != http.ErrHijacked {
		panic(fmt.Sprint(n, err))
	}
}

func nested(f func(), depth int) {
	if depth == 0 {
		f()
		return
	}
	nested(f, depth-1)
}
