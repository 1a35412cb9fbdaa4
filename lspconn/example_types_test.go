package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/lspconn"
)

// Messages that are sent before the server has answered initialize are written afterwards.
// Goroutines that belong to the connection, such as a file watcher, can hold a guard of its Scope.
// Close does not wait for them; the completion of the Scope does.
func ExampleConn() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	conn.Scope().Go(func(context.Context) {
		<-conn.Scope().Done()
		fmt.Println("the watcher has ended")
	})
	if _, err := conn.Ready(ctx); err != nil { // the result contains the server's capabilities
		log.Fatal(err)
	}
	fmt.Println(conn.Name(), "is", conn.State(), conn.Err())
	fmt.Println(conn.Notify(ctx, "textDocument/didOpen", json.RawMessage(
		`{"textDocument": {"uri": "file:///new.go", "languageId": "go", "version": 0, "text": "package main"}}`)))
	_, err = conn.Call(ctx, "workspace/symbol", json.RawMessage(`{"query": "main"}`))
	fmt.Println(err)

	conn.Close(ctx)
	conn.Scope().Completion().Wait(ctx)
	<-conn.Done()
	fmt.Println(conn.Name(), "is", conn.State(), errors.Is(conn.Err(), lspconn.ErrClosing))
	// Prints:
	// gopls is Ready <nil>
	// <nil>
	// <nil>
	// the watcher has ended
	// gopls is Closed true
}

// A Delivery reports whether a notification has been written. A notification that is sent after
// Close is not written.
func ExampleDelivery() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	written := conn.NotifyLatest("main.go", "workspace/didChangeConfiguration", json.RawMessage(`{"settings": null}`))
	<-written.Done()
	fmt.Println(written.Wait(ctx))

	conn.Close(ctx)
	late := conn.NotifyLatest("main.go", "workspace/didChangeConfiguration", json.RawMessage(`{"settings": null}`))
	fmt.Println(errors.Is(late.Wait(ctx), lspconn.ErrClosing))
	// Prints:
	// <nil>
	// true
}

// A program usually logs the report. To react to problems, it checks the outcome and the survivors.
func ExampleReport() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := conn.Ready(ctx); err != nil {
		log.Fatal(err)
	}
	report, err := conn.Close(ctx)
	var exit *lspconn.Exit = report.Exit // nil if it is not known how the process ended
	switch report.Outcome {
	case lspconn.Clean:
		fmt.Println("left as told")
	case lspconn.ExitedEarly:
		fmt.Println("left before it was told:", exit)
	case lspconn.Terminated, lspconn.Killed:
		fmt.Println("had to be ended:", exit.Signal)
	}
	fmt.Println(len(report.Survivors), err) // no survivors: the server and everything that it started have been reaped
	// Prints:
	// left as told
	// 0 <nil>
}

// An error of the type ResponseError was sent by the server, or it was returned by the connection
// for a message that could not be sent.
func ExampleResponseError() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Call(ctx, "workspace/noSuchMethod", nil)
	var answer *lspconn.ResponseError
	if errors.As(err, &answer) {
		fmt.Println(answer.Code == lspconn.CodeMethodNotFound)
	}
	// Prints: true
}

// If a server exits unexpectedly, pending calls and later messages fail with an error that wraps an
// ExitError.
func ExampleExitError() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls", "-no-such-flag"}})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Call(ctx, "workspace/symbol", json.RawMessage(`{"query": "main"}`))
	var ended *lspconn.ExitError
	fmt.Println(errors.As(err, &ended))
	<-conn.Done()
	fmt.Println(conn.State() == lspconn.Failed, ended.Exit.Code)
	// Prints:
	// true
	// true 2
}

// A server that prints something other than messages to stdout violates the protocol.
func ExampleProtocolError() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls", "version"}})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Ready(ctx)
	var broken *lspconn.ProtocolError
	fmt.Println(errors.As(err, &broken), errors.Is(err, lspconn.ErrClosing))
	// Prints: true true
}

// A panic in a callback fails the connection and not the program. Pending calls return the panic.
func ExamplePanicError() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{
		Command:    []string{"gopls"},
		Initialize: json.RawMessage(`{"capabilities": {}, "rootUri": "file:///tmp"}`),
		OnNotify:   func(_ context.Context, method string, _ json.RawMessage) { panic("no such document") },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	<-conn.Done() // closed soon: gopls sends notifications, for example window/logMessage
	var panicked *lspconn.PanicError
	if errors.As(conn.Err(), &panicked) {
		fmt.Println(panicked.Callback, panicked.Value)
	}
	// Prints: OnNotify no such document
}

// If a connection delays the shutdown of an application, the application's guard report names it.
func ExampleConn_Scope() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("editor"))
	conn, err := lspconn.Start(app, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	g := conn.Scope().Guard() // a guard that is held while an edit is being written to disk
	app.Shutdown()
	conn.Close(context.Background())
	fmt.Println(app.GuardReport())
	g.Release()
	fmt.Println(app.Completion().Wait(context.Background()))
	// Prints:
	// 1 guard: editor/gopls ×1
	// <nil>
}

// If the user does not want to wait for a slow server, Force kills it. Close still reports how the
// server ended.
func ExampleConn_Force() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	conn.Ready(ctx)
	conn.Force(errors.New("^C was pressed twice"))
	report, err := conn.Close(ctx)
	fmt.Println(report.Outcome, err)
	fmt.Println(report.Failure)
	// Prints:
	// Killed <nil>
	// closing was cut short by Force: ^C was pressed twice
}

// Params and results may be Go types.
func ExampleCall() {
	type symbol struct{ Name string }
	type document struct {
		URI string `json:"uri"`
	}
	type params struct {
		TextDocument document `json:"textDocument"`
	}
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	lspconn.Notify(ctx, conn, "textDocument/didOpen", json.RawMessage(
		`{"textDocument": {"uri": "file:///new.go", "languageId": "go", "version": 0, "text": "package main\nfunc main() {}"}}`))
	symbols, err := lspconn.Call[[]symbol](ctx, conn, "textDocument/documentSymbol", params{document{"file:///new.go"}})
	fmt.Println(symbols, err)
	// Prints: [{main}] <nil>
}

func ExampleNotify() {
	type settings struct {
		Settings any `json:"settings"`
	}
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	fmt.Println(lspconn.Notify(ctx, conn, "workspace/didChangeConfiguration", settings{}))
	// Prints: <nil>
}
