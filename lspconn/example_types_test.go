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
// Goroutines that belong to the connection, such as a file watcher, can hold a guard of its Scope:
// Close waits for them.
func ExampleConn() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, server())
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
	fmt.Println(conn.Notify(ctx, "note", json.RawMessage(`{"uri": "file:///main.go"}`)))
	result, err := conn.Call(ctx, "echo", json.RawMessage("1"))
	fmt.Println(string(result), err)

	conn.Close(ctx)
	<-conn.Done()
	fmt.Println(conn.Name(), "is", conn.State(), errors.Is(conn.Err(), lspconn.ErrClosing))
	// Output:
	// fake is Ready <nil>
	// <nil>
	// 1 <nil>
	// the watcher has ended
	// fake is Closed true
}

// A Delivery reports whether a notification has been written. A notification that is sent after
// Close is not written.
func ExampleDelivery() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, server())
	if err != nil {
		log.Fatal(err)
	}
	written := conn.NotifyLatest("main.go", "note", json.RawMessage(`"package main"`))
	<-written.Done()
	fmt.Println(written.Wait(ctx))

	conn.Close(ctx)
	late := conn.NotifyLatest("main.go", "note", json.RawMessage(`"package late"`))
	fmt.Println(errors.Is(late.Wait(ctx), lspconn.ErrClosing))
	// Output:
	// <nil>
	// true
}

// A program usually logs the report. To react to problems, it checks the outcome and the survivors.
func ExampleReport() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, fake(role{Behaviour: behaviours{Shutdown: "exit", Code: 3}})) // exits on shutdown instead of waiting for exit
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
	// Output:
	// left before it was told: exit code 3
	// 0 <nil>
}

// An error of the type ResponseError was sent by the server, or it was returned by the connection
// for a message that could not be sent.
func ExampleResponseError() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, server())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Call(ctx, "fail", nil)
	var answer *lspconn.ResponseError
	if errors.As(err, &answer) {
		fmt.Println(answer.Message, answer.Code == lspconn.CodeRequestFailed)
	}
	// Output: no luck false
}

// If a server exits unexpectedly, pending calls and later messages fail with an error that wraps an
// ExitError.
func ExampleExitError() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, fake(role{Behaviour: behaviours{Code: 2}}))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Call(ctx, "die", nil)
	var ended *lspconn.ExitError
	fmt.Println(errors.As(err, &ended))
	<-conn.Done()
	fmt.Println(conn.State() == lspconn.Failed, ended.Exit.Code)
	// Output:
	// true
	// true 2
}

// A server that prints something other than messages to stdout violates the protocol.
func ExampleProtocolError() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, server())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Call(ctx, "garbage", nil)
	var broken *lspconn.ProtocolError
	fmt.Println(errors.As(err, &broken), errors.Is(err, lspconn.ErrClosing))
	// Output: true true
}

// A panic in a callback fails the connection and not the program. Pending calls return the panic.
func ExamplePanicError() {
	ctx := context.Background()
	s := server()
	s.OnNotify = func(_ context.Context, method string, _ json.RawMessage) { panic("no such document") }
	conn, err := lspconn.Start(ctx, s)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	conn.Call(ctx, "notes", json.RawMessage("1")) // makes the server send a notification
	<-conn.Done()
	var panicked *lspconn.PanicError
	if errors.As(conn.Err(), &panicked) {
		fmt.Println(panicked.Callback, panicked.Value)
	}
	// Output: OnNotify no such document
}

// If a connection delays the shutdown of an application, the application's guard report names it.
func ExampleConn_Scope() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("editor"))
	conn, err := lspconn.Start(app, server())
	if err != nil {
		log.Fatal(err)
	}
	g := conn.Scope().Guard() // held while an edit is being written to disk
	app.Shutdown()
	conn.Close(context.Background())
	fmt.Println(app.GuardReport())
	g.Release()
	fmt.Println(app.Completion().Wait(context.Background()))
	// Output:
	// 1 guard: editor/fake ×1
	// <nil>
}

// A user who does not want to wait for a slow server has it killed. Close still reports how it ended.
func ExampleConn_Force() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, fake(role{Behaviour: behaviours{Shutdown: "never"}}))
	if err != nil {
		log.Fatal(err)
	}
	conn.Ready(ctx)
	conn.Force(errors.New("^C was pressed twice"))
	report, err := conn.Close(ctx)
	fmt.Println(report.Outcome, err)
	fmt.Println(report.Failure)
	// Output:
	// Killed <nil>
	// closing was cut short by Force: ^C was pressed twice
}

// Params and results may be Go types.
func ExampleCall() {
	type hover struct{ Contents string }
	type params struct {
		Contents string `json:"contents"`
	}
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, server())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	result, err := lspconn.Call[*hover](ctx, conn, "echo", params{"func main()"})
	fmt.Println(result.Contents, err)
	// Output: func main() <nil>
}

func ExampleNotify() {
	type document struct {
		URI string `json:"uri"`
	}
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, server())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	fmt.Println(lspconn.Notify(ctx, conn, "note", document{"file:///main.go"}))
	// Output: <nil>
}
