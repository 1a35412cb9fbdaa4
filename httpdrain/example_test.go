package httpdrain_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

func listenForExample() net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return ln
}

func ExampleServe() {
	s := ctxshutdown.New(context.Background()) // in main, use the context of signal.NotifyContext
	defer s.Shutdown()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
		s.Shutdown() // the scope is stopped during this request
		fmt.Fprint(w, "the request's context: ", r.Context().Err())
	})

	ln := listenForExample()
	served := make(chan error)
	go func() { served <- httpdrain.Serve(s, &http.Server{Handler: mux}, ln) }()

	resp, err := http.Get("http://" + ln.Addr().String() + "/hello")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s\ndrained: %v\n", body, <-served)
	// Output:
	// the request's context: <nil>
	// drained: <nil>
}

// A program that consists of one server needs no other call. It stops at a signal; in this example,
// the context has ended before the call.
func ExampleRun() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := httpdrain.Run(ctx, "127.0.0.1:0", http.NotFoundHandler())
	fmt.Println("exit code", graceful.ExitCode(err))
	// Output:
	// exit code 0
}

// A handler of server-sent events learns of the stop from the scope, and sends a last message.
func ExampleServe_events() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	events := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "data: hello\n\n")
		http.NewResponseController(w).Flush()
		scope, _ := ctxshutdown.FromContext(r.Context())
		select {
		case <-scope.Done():
			fmt.Fprint(w, "retry: 1000\ndata: bye\n\n")
		case <-r.Context().Done(): // the client has disconnected
		}
	}

	ln := listenForExample()
	served := make(chan error)
	srv := &http.Server{Handler: http.HandlerFunc(events)}
	// With pacing, the clients do not all reconnect at once.
	go func() { served <- httpdrain.Serve(s, srv, ln, httpdrain.WithPacing(100)) }()

	resp, err := http.Get("http://" + ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	s.Shutdown()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%sdrained: %v\n", body, <-served)
	// Output:
	// data: hello
	//
	// retry: 1000
	// data: bye
	//
	// drained: <nil>
}

// CutError lists the requests that were not finished when Force was called.
func ExampleCutError() {
	s := ctxshutdown.New(context.Background())
	entered, written := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reports/{id}", func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-written // the handler ignores its context
	})

	ln := listenForExample()
	served := make(chan error)
	go func() { served <- httpdrain.Serve(s, &http.Server{Handler: mux}, ln) }()
	go http.Get("http://" + ln.Addr().String() + "/reports/7")
	<-entered
	s.Force(errors.New("out of time"))

	var cut *httpdrain.CutError
	if errors.As(<-served, &cut) {
		fmt.Println(cut.Cause, len(cut.Cut), cut.Cut[0].Route)
	}
	close(written)
	s.Shutdown().Wait(context.Background())
	// Output:
	// out of time 1 GET /reports/{id}
}
