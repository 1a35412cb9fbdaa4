package httpclients

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
)

// A program is an HTTP client that is not written in Go.
type program struct {
	name     string
	check    []string // a command that succeeds if the program is installed
	protocol string   // the HTTP version that the server must see
	secure   bool     // the client connects with TLS
	command  []string // the command that sends the requests; URL in it stands for the address of the server
	// result finds numbers in the output of the command. From these numbers, the function failed
	// computes how many requests the client has sent and how many have failed. Its argument
	// answered is the number of requests that the server has answered.
	result *regexp.Regexp
	failed func(matches []string, answered int) (requests, failures int)
}

// The scripts of testdata print the number of requests, the number of failures and the first
// failure.
var (
	counts     = regexp.MustCompile(`^(\d+) (\d+)`)
	readCounts = func(m []string, _ int) (int, int) { return number(m[1]), number(m[2]) }
	// h2load and wrk print a summary.
	h2loadCounts = regexp.MustCompile(`requests: (\d+) total, .* (\d+) succeeded, .*\nstatus codes: (\d+) 2xx`)
	readH2load   = func(m []string, _ int) (int, int) {
		return number(m[1]), number(m[1]) - min(number(m[2]), number(m[3]))
	}
	// After a GOAWAY, h2load does not connect again, and counts the requests that it has not sent
	// as failed.
	readH2loadHTTP2 = func(m []string, answered int) (int, int) { return answered, answered - min(number(m[2]), number(m[3])) }
	wrkCounts       = regexp.MustCompile(`(\d+) requests in(?:(?s:.*)Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+))?(?:(?s:.*)Non-2xx or 3xx responses: (\d+))?`)
	readWrk         = func(m []string, _ int) (int, int) {
		failures := 0
		for _, s := range m[2:] {
			failures += number(s)
		}
		return number(m[1]), failures
	}
	// curl prints the status of each response.
	curlCounts = regexp.MustCompile(`^(?s:.*)$`)
	readCurl   = func(m []string, _ int) (int, int) {
		all := strings.Fields(m[0])
		failures := 0
		for _, status := range all {
			if status != "200" {
				failures++
			}
		}
		return len(all), failures
	}
)

func curl(args ...string) []string {
	return append(append([]string{"curl", "-sSk", "-o", os.DevNull, "-w", `%{http_code}\n`, "-d", "hello"}, args...), "URL/?[1-500]")
}

var programs = []program{
	{"curl", []string{"curl", "--version"}, "HTTP/1.1", false, curl("--http1.1"), curlCounts, readCurl},
	{"curl, parallel", []string{"curl", "--version"}, "HTTP/1.1", false, curl("--http1.1", "-Z", "--parallel-max", "8"), curlCounts, readCurl},
	{"curl", []string{"curl", "--version"}, "HTTP/2.0", true, curl("--http2"), curlCounts, readCurl},
	{"wrk", []string{"sh", "-c", "command -v wrk"}, "HTTP/1.1", false, []string{"wrk", "-c8", "-t2", "-d1s", "URL"}, wrkCounts, readWrk},
	{"wrk", []string{"sh", "-c", "command -v wrk"}, "HTTP/1.1", true, []string{"wrk", "-c8", "-t2", "-d1s", "URL"}, wrkCounts, readWrk},
	{"h2load", []string{"h2load", "--version"}, "HTTP/1.1", false, []string{"h2load", "--h1", "-c8", "-n2000", "URL"}, h2loadCounts, readH2load},
	{"h2load", []string{"h2load", "--version"}, "HTTP/2.0", true, []string{"h2load", "-c8", "-m10", "-n2000", "URL"}, h2loadCounts, readH2loadHTTP2},
	{"h2load, h2c", []string{"h2load", "--version"}, "HTTP/2.0", false, []string{"h2load", "-c8", "-m10", "-n2000", "URL"}, h2loadCounts, readH2loadHTTP2},
	{"fetch of Node", []string{"node", "--version"}, "HTTP/1.1", false, []string{"node", "testdata/fetch.mjs", "URL"}, counts, readCounts},
	{"requests of Python", []string{"/usr/bin/python3", "-c", "import requests"}, "HTTP/1.1", false, []string{"/usr/bin/python3", "testdata/session.py", "URL"}, counts, readCounts},
	{"HttpClient of Java", []string{"javac", "-version"}, "HTTP/1.1", false, []string{"java", "-XX:TieredStopAtLevel=1", "testdata/Client.java", "URL", "HTTP_1_1"}, counts, readCounts},
}

// Two clients are left out because their requests fail whatever a server does: the HttpClient of
// Java up to 23 over HTTP/2 fails all its requests when it gets a GOAWAY (JDK-8335181), and curl
// 7.88 with --http2-prior-knowledge can send only one request on a connection.

func number(s string) int { n, _ := strconv.Atoi(s); return n }

// Clients of other languages have no failed request while a server is replaced several times by
// another one that has the same socket, as with systemd or the launcher.
//
// If a busy machine does not run the client for a second, the client may send its next request just
// when the server closes the connection, which no server can avoid. So the test fails only if
// requests fail in two attempts.
func TestServe_ClientsOfOtherLanguagesSeeNoFailure(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("on Windows, two listeners cannot share a socket")
	}
	for _, p := range programs {
		name := p.name + ", " + p.protocol
		if p.secure {
			name += " over TLS"
		}
		t.Run(name, func(t *testing.T) {
			if err := exec.Command(p.check[0], p.check[1:]...).Run(); err != nil {
				if os.Getenv("CI") != "" {
					t.Fatalf("%s is not installed: %v", p.name, err)
				}
				t.Skipf("%s is not installed: %v", p.name, err)
			}
			t.Parallel()
			failed := testProgram(t, p)
			if failed != "" {
				t.Logf("first attempt: %s", failed)
				failed = testProgram(t, p)
			}
			if failed != "" {
				t.Errorf("second attempt: %s", failed)
			}
		})
	}
}

// testProgram runs the program until the server has been replaced three times, and says which
// requests have failed, if any.
func testProgram(t *testing.T, p program) (failed string) {
	const stops = 3
	var answered atomic.Int64
	var last atomic.Bool
	progress, quit := make(chan bool, 1), make(chan bool) // progress receives a value after each hundred requests
	r := newRelay(t, p.secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.Proto != p.protocol {
			http.Error(w, "unexpected protocol "+r.Proto, http.StatusHTTPVersionNotSupported)
			return
		}
		if last.Load() {
			io.WriteString(w, "last")
		}
		if answered.Add(1)%100 == 0 {
			select {
			case progress <- true:
			default:
			}
		}
	}))
	var stopper sync.WaitGroup
	stopper.Go(func() {
		for range stops {
			select {
			case <-progress:
				r.replace(t)
			case <-quit:
				return
			}
		}
		last.Store(true)
	})
	requests := 0
	for isLast := false; !isLast; {
		isLast = last.Load()
		n, failures, output := p.run(t, r.url, &answered)
		requests += n
		if failures > 0 || n == 0 {
			failed = fmt.Sprintf("%d of %d requests failed: %s", failures, n, output)
			break
		}
	}
	close(quit)
	stopper.Wait()
	t.Logf("%d requests, %d stops", requests, stops)
	return failed
}

// run runs the program once, and returns the number of requests and of failures, and what it
// prints.
func (p program) run(t *testing.T, url string, answered *atomic.Int64) (requests, failures int, output string) {
	args := make([]string, len(p.command))
	for i, a := range p.command {
		args[i] = strings.Replace(a, "URL", url, 1)
	}
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	before := answered.Load()
	err := cmd.Run()
	output = stdout.String() + stderr.String()
	m := p.result.FindStringSubmatch(stdout.String())
	if err != nil || m == nil {
		return 1, 1, fmt.Sprintf("%s: %v, printed: %s", cmd, err, output)
	}
	requests, failures = p.failed(m, int(answered.Load()-before))
	return requests, failures, output
}

// A relay is a service that is replaced without losing its socket.
type relay struct {
	url     string
	handler http.Handler
	secure  bool
	spare   *os.File // a duplicate of the listening socket
	scope   *ctxshutdown.Swansong
	done    chan error
}

func newRelay(t *testing.T, secure bool, h http.Handler) *relay {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{handler: h, secure: secure, url: "http://" + ln.Addr().String()}
	if secure {
		r.url = "https://" + ln.Addr().String()
	}
	if r.spare, err = ln.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.spare.Close() })
	r.serve(ln)
	t.Cleanup(func() { r.scope.Force(nil); <-r.done })
	return r
}

func (r *relay) serve(ln net.Listener) {
	srv := &http.Server{Handler: r.handler, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	if r.secure {
		ts := httptest.NewTLSServer(nil)
		srv.TLSConfig = &tls.Config{Certificates: ts.TLS.Certificates}
		ts.Close()
	}
	s, done := ctxshutdown.New(context.Background()), make(chan error, 1)
	r.scope, r.done = s, done
	go func() {
		if r.secure {
			done <- httpdrain.ServeTLS(s, srv, ln, "", "")
		} else {
			done <- httpdrain.Serve(s, srv, ln)
		}
	}()
}

// replace starts the next server and then stops the running one. It returns when the stopped server
// has drained.
func (r *relay) replace(t *testing.T) {
	ln, err := net.FileListener(r.spare)
	if err != nil {
		t.Error(err)
		return
	}
	before, done := r.scope, r.done
	r.serve(ln)
	before.Shutdown()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
