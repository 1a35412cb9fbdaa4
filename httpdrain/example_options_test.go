package httpdrain_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

// hello returns a handler that stops s in its first request.
func hello(s *ctxshutdown.Swansong) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Shutdown()
		fmt.Fprint(w, "hello")
	})
}

// fetch sends a GET request and prints the response.
func fetch(client *http.Client, url string) {
	resp, err := client.Get(url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body))
}

// ListenAndServe needs only an address. It returns an error if the port is in use.
func ExampleListenAndServe() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	taken := listenForExample()
	defer taken.Close()
	err := httpdrain.ListenAndServe(s, &http.Server{Addr: taken.Addr().String(), Handler: hello(s)})
	fmt.Println(err != nil)
	// Output:
	// true
}

func ExampleListenAndServeTLS() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	err := httpdrain.ListenAndServeTLS(s, &http.Server{Addr: "127.0.0.1:0"}, "cert.pem", "key.pem")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output:
	// true
}

// The certificates may also be in TLSConfig of the server. Clients that support HTTP/2 use HTTP/2.
func ExampleServeTLS() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	certified := httptest.NewTLSServer(nil) // a server with a certificate, and with a client that trusts it
	defer certified.Close()

	srv := &http.Server{Handler: hello(s), TLSConfig: &tls.Config{Certificates: certified.TLS.Certificates}}
	ln := listenForExample()
	served := make(chan error)
	go func() { served <- httpdrain.ServeTLS(s, srv, ln, "", "") }()

	fetch(certified.Client(), "https://"+ln.Addr().String())
	fmt.Println("drained:", <-served)
	// Output:
	// 200 hello
	// drained: <nil>
}

// Probes report the state of a scope. Ready fails as soon as the scope is stopped, and Live fails
// when the drain has ended.
func ExampleLive() {
	s := ctxshutdown.New(context.Background())
	work := s.Guard()
	get := func(h http.Handler) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Code
	}
	ready, live := httpdrain.Ready(s), httpdrain.Live(s)
	fmt.Println("running: ", get(ready), get(live))
	s.Shutdown()
	fmt.Println("draining:", get(ready), get(live))
	work.Release()
	fmt.Println("drained: ", get(ready), get(live))
	// Output:
	// running:  200 200
	// draining: 503 200
	// drained:  503 503
}

// Without an option, Debug refuses every request.
func ExampleDebug() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("shop"))
	defer s.Shutdown()
	r := httptest.NewRequest("GET", "http://localhost/debug/shutdown", nil)
	w := httptest.NewRecorder()
	httpdrain.Debug(s).ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output:
	// 403
}

// With LocalOnly, Debug answers a request from the same machine, and refuses one from another
// machine.
func ExampleLocalOnly() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("shop"))
	defer s.Shutdown()
	page := httpdrain.Debug(s, httpdrain.LocalOnly())
	for _, remote := range []string{"127.0.0.1:4711", "192.0.2.1:4711"} {
		r := httptest.NewRequest("GET", "http://localhost/debug/shutdown", nil)
		r.RemoteAddr = remote
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		fmt.Println(remote, w.Code)
	}
	// Output:
	// 127.0.0.1:4711 200
	// 192.0.2.1:4711 403
}

// On the listener of the service, clients must send a token.
func ExampleWithToken() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("shop"))
	defer s.Shutdown()
	page := httpdrain.Debug(s, httpdrain.WithToken("correct horse"))
	for _, token := range []string{"correct horse", "guessed"} {
		r := httptest.NewRequest("GET", "http://shop.example.com/debug/shutdown", nil)
		r.SetBasicAuth("me", token)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 401
}

// Behind a proxy that authenticates its clients, Debug may answer requests for the proxy's host
// name.
func ExampleAllowRemote() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	page := httpdrain.Debug(s, httpdrain.AllowRemote("admin.example.com"))
	for _, host := range []string{"admin.example.com", "rebound.example.net"} {
		r := httptest.NewRequest("GET", "http://"+host+"/debug/shutdown", nil)
		r.RemoteAddr = "192.0.2.1:4711"
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		fmt.Println(host, w.Code)
	}
	// Output:
	// admin.example.com 200
	// rebound.example.net 403
}

// Names distinguish several servers of a program in reports, for example a public and an internal
// one.
func ExampleWithName() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("shop"))
	ln := listenForExample()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, e := range s.GuardReport().Entries() {
			fmt.Fprintln(w, e.Path)
		}
		s.Shutdown()
	})}
	served := make(chan error)
	go func() { served <- httpdrain.Serve(s, srv, ln, httpdrain.WithName("operators")) }()
	fetch(http.DefaultClient, "http://"+ln.Addr().String())
	<-served
	// Output:
	// 200 shop/operators
}

func ExampleWithLogger() {
	s := ctxshutdown.New(context.Background())
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.MessageKey, "server":
			return a
		}
		return slog.Attr{} // omit the time, and the attributes that are numbers
	}}))
	ln := listenForExample()
	served := make(chan error)
	go func() { served <- httpdrain.Serve(s, &http.Server{Handler: hello(s)}, ln, httpdrain.WithLogger(log)) }()
	fetch(http.DefaultClient, "http://"+ln.Addr().String())
	<-served
	// Output:
	// 200 hello
	// msg="httpdrain: draining" server=http
	// msg="httpdrain: drained" server=http
}

// In this example the clients are in a distant network, and need up to 300 ms to stop using a
// connection. So the lower bound of the linger is longer than that: 500 ms. A connection whose
// client sends requests regularly lingers until its next request is due, but no longer than the
// upper bound: two seconds.
func ExampleWithLinger() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	ln := listenForExample()
	served := make(chan error)
	go func() {
		served <- httpdrain.Serve(s, &http.Server{Handler: hello(s)}, ln, httpdrain.WithLinger(500*time.Millisecond, 2*time.Second))
	}()
	fetch(http.DefaultClient, "http://"+ln.Addr().String())
	fmt.Println("drained:", <-served)
	// Output:
	// 200 hello
	// drained: <nil>
}

// Behind a load balancer that closes its own connections when the server is not ready, the server
// need not close connections in the lame duck phase.
func ExampleKeepInLameDuck() {
	ln := listenForExample()
	served := make(chan error)
	go func() {
		served <- graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
			return httpdrain.Serve(s, &http.Server{Handler: hello(s)}, ln, httpdrain.KeepInLameDuck())
		}, graceful.WithLameDuck(5*time.Second))
	}()
	fetch(http.DefaultClient, "http://"+ln.Addr().String())
	fmt.Println("drained:", <-served)
	// Output:
	// 200 hello
	// drained: <nil>
}

// The shortest time for Retry-After is a second, because the header has whole seconds.
func ExampleWithRetryAfter() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	err := httpdrain.Serve(s, &http.Server{}, listenForExample(), httpdrain.WithRetryAfter(time.Millisecond))
	fmt.Println(err)
	// Output:
	// httpdrain: WithRetryAfter(1ms): must be from 1s to 24h0m0s
}

// Pacing prevents the clients of a thousand websockets from reconnecting to the other servers at
// once.
func ExampleWithPacing() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	ln := listenForExample()
	served := make(chan error)
	go func() { served <- httpdrain.Serve(s, &http.Server{Handler: hello(s)}, ln, httpdrain.WithPacing(50)) }()
	fetch(http.DefaultClient, "http://"+ln.Addr().String())
	fmt.Println("drained:", <-served)
	// Output:
	// 200 hello
	// drained: <nil>
}

// A router that is not a ServeMux needs a function that returns its patterns for CutError.
func ExampleWithRoute() {
	s := ctxshutdown.New(context.Background())
	entered, written := make(chan struct{}), make(chan struct{})
	router := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(entered); <-written })
	ln := listenForExample()
	served := make(chan error)
	go func() {
		served <- httpdrain.Serve(s, &http.Server{Handler: router}, ln,
			httpdrain.WithRoute(func(method, path string) string { return method + " /reports/{id}" }))
	}()
	go func() {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /reports/7 HTTP/1.1\r\nHost: example.com\r\n\r\n")
		io.Copy(io.Discard, conn)
	}()
	<-entered
	s.Force(nil)
	var cut *httpdrain.CutError
	if errors.As(<-served, &cut) {
		fmt.Println(cut.Cut[0].Route)
	}
	close(written)
	s.Completion().Wait(context.Background())
	// Output:
	// GET /reports/{id}
}
