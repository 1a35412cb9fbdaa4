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

// Who was cut is known by route, so that what keeps outliving the drain can be counted.
func ExampleCut() {
	byRoute := map[string]int{}
	count := func(c httpdrain.Cut) {
		if !c.Hijacked {
			byRoute[c.Route]++
		}
	}
	err := error(&httpdrain.CutError{Name: "http", Cut: []httpdrain.Cut{ // as Serve returns it
		{Method: "GET", Route: "GET /reports/{id}", Remote: "192.0.2.1:4711"},
		{Method: "GET", Route: "GET /reports/{id}", Remote: "192.0.2.2:4711"},
		{Method: "GET", Route: "GET /events", Remote: "192.0.2.1:4712", Hijacked: true},
	}, Cause: errors.New("out of time")})
	var cut *httpdrain.CutError
	if errors.As(err, &cut) {
		for _, c := range cut.Cut {
			count(c)
		}
	}
	fmt.Println(byRoute)
	// Output:
	// map[GET /reports/{id}:2]
}

// What a server was given by an option cannot keep it from draining. Its panic is part of what Serve returns.
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

// A broken handler of a logger.
type broken struct{ slog.Handler }

func (b broken) WithAttrs([]slog.Attr) slog.Handler { return b }

func (broken) Enabled(context.Context, slog.Level) bool { return true }

func (broken) Handle(context.Context, slog.Record) error { panic("the disk is full") }
