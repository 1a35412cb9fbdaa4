package httpdrain_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
)

// The routes of unfinished requests show which handlers often last longer than the drain.
func ExampleCut() {
	s := ctxshutdown.New(context.Background())
	begun, written := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reports/{id}", func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-written // the handler ignores its context
	})
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack() // websocket packages hijack the connection in this way
		if err != nil {
			fmt.Println(err)
			return
		}
		begun <- struct{}{}
		<-written
		conn.Close()
	})
	ln := listenForExample()
	served := make(chan error)
	go func() { served <- httpdrain.Serve(s, &http.Server{Handler: mux}, ln) }()
	for _, path := range []string{"/reports/7", "/reports/8", "/events"} {
		go http.Get("http://" + ln.Addr().String() + path)
		<-begun
	}
	s.Force(errors.New("out of time")) // graceful.Run does this when its phase Soft ends before the drain

	byRoute := map[string]int{}
	count := func(c httpdrain.Cut) {
		if c.Hijacked {
			c.Route += " (hijacked)"
		}
		byRoute[c.Route]++
	}
	var cut *httpdrain.CutError
	if errors.As(<-served, &cut) {
		for _, c := range cut.Cut {
			count(c)
		}
	}
	fmt.Println(byRoute)
	close(written)
	s.Shutdown().Wait(context.Background())
	// Output:
	// map[GET /events (hijacked):1 GET /reports/{id}:2]
}

// A panic in an option does not prevent the drain. Serve returns it as an error.
func ExamplePanicError() {
	s := ctxshutdown.New(context.Background())
	log := slog.New(broken{slog.DiscardHandler})
	ln := listenForExample()
	served := make(chan error)
	go func() { served <- httpdrain.Serve(s, &http.Server{Handler: hello(s)}, ln, httpdrain.WithLogger(log)) }()
	fetch(http.DefaultClient, "http://"+ln.Addr().String())

	err := <-served
	var panicked *httpdrain.PanicError
	if errors.As(err, &panicked) {
		fmt.Println(panicked.Option, panicked.Value)
	}
	fmt.Println(s.State())
	// Output:
	// 200 hello
	// WithLogger the disk is full
	// Complete
}

// broken is a log handler that panics.
type broken struct{ slog.Handler }

func (b broken) WithAttrs([]slog.Attr) slog.Handler { return b }

func (broken) Enabled(context.Context, slog.Level) bool { return true }

func (broken) Handle(context.Context, slog.Record) error { panic("the disk is full") }
