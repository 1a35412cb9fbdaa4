package httpdrain

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"path"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/stacks"
)

// A writer1 is the ResponseWriter for HTTP/1. It adds to a request the methods that only HTTP/1
// has.
//
// net/http logs each WriteHeader that comes too late, and each WriteHeader or Write after Hijack,
// with the file and line of the caller outside of net/http. Here, the caller would be this file. So
// writer1 does not pass these calls on, but does what net/http does, and logs the handler's line.
// net/http does not log them on HTTP/2.
type writer1 struct {
	request
	isHijacked atomic.Bool // atomic, because a goroutine of the handler may write while the handler hijacks
	hasHeader  bool        // the server's ResponseWriter is known to have written the header
}

func (w *writer1) WriteHeader(code int) {
	switch {
	case w.isHijacked.Load():
		w.logCaller("response.WriteHeader on hijacked connection")
	case w.hasHeader:
		w.logCaller("superfluous response.WriteHeader call")
	default:
		w.request.WriteHeader(code)
		w.hasHeader = isFinal(code)
	}
}

func (w *writer1) Write(b []byte) (int, error) {
	if w.isHijacked.Load() {
		return w.writeHijacked(len(b))
	}
	n, err := w.request.Write(b)
	w.hasHeader = true
	return n, err
}

func (w *writer1) WriteString(s string) (int, error) {
	if w.isHijacked.Load() {
		return w.writeHijacked(len(s))
	}
	n, err := w.request.WriteString(s)
	w.hasHeader = true
	return n, err
}

// writeHijacked is what Write does after Hijack.
func (w *writer1) writeHijacked(n int) (int, error) {
	if n > 0 {
		w.logCaller("response.Write on hijacked connection")
	}
	return 0, http.ErrHijacked
}

func (w *writer1) Flush() { w.FlushError() }

func (w *writer1) FlushError() error {
	if w.isHijacked.Load() {
		return http.NewResponseController(w.ResponseWriter).Flush()
	}
	err := w.request.FlushError()
	w.hasHeader = true
	return err
}

func (w *writer1) ReadFrom(r io.Reader) (int64, error) {
	w.beginHeader()
	n, err := readFrom(w.ResponseWriter, r)
	w.hasHeader = w.hasHeader || n > 0 // if nothing was copied, the header is not written yet, and the handler may set the status
	return n, err
}

func (w *writer1) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	// beginHeader is not called here because it may set Connection: close. A handler that is an
	// [httputil.ReverseProxy] writes the header of its ResponseWriter to the hijacked connection,
	// so the client would read Connection: close although the connection stays open.
	w.recordPattern()
	nc, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.isHijacked.Store(true)
		nc = w.conn.handOver(nc)
	}
	return nc, rw, err
}

// logCaller logs a mistake of the handler in the form that net/http uses. It names the function,
// the file and the line of the innermost caller that is in neither net/http nor this package.
func (w *writer1) logCaller(mistake string) {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	frame, more := frames.Next()
	for more && (strings.HasPrefix(frame.Function, "net/http.") || strings.HasPrefix(frame.Function, stacks.ModulePath+"httpdrain.")) {
		frame, more = frames.Next()
	}
	logf := log.Printf
	if l := w.conn.drain.server.ErrorLog; l != nil {
		logf = l.Printf
	}
	logf("http: %s from %s (%s:%d)", mistake, frame.Function, path.Base(frame.File), frame.Line)
}
