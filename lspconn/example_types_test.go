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

// What is sent before the server has answered initialize is written then. Scope is for what belongs to the connection, such
// as a watcher of files: Close waits for it.
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
	if _, err := conn.Ready(ctx); err != nil { // its result is what the server is capable of
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

// A Delivery is for those who want to know. What came too late is not written, and says so.
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

// Most of the time, a report is for the log; a program that looks for trouble looks at the outcome, and at what is left.
func ExampleReport() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, fake(role{Behaviour: behaviours{Shutdown: "exit", Code: 3}})) // does not wait for exit
	if err != nil {
		log.Fatal(err)
	}
	if _, err := conn.Ready(ctx); err != nil {
		log.Fatal(err)
	}
	report, err := conn.Close(ctx)
	var exit *lspconn.Exit = report.Exit // nil where nobody knows how it ended
	switch report.Outcome {
	case lspconn.Clean:
		fmt.Println("left as told")
	case lspconn.ExitedEarly:
		fmt.Println("left before it was told:", exit)
	case lspconn.Terminated, lspconn.Killed:
		fmt.Println("had to be ended:", exit.Signal)
	}
	fmt.Println(len(report.Survivors), err) // it has been reaped, and all that it has started
	// Output:
	// left before it was told: exit code 3
	// 0 <nil>
}

// What the server answers is told from what has become of the connection by the type of the error, and by its code.
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

// A server that ends although nobody has told it to is the cause of whatever fails for it.
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

// A server that prints to stdout what is no message cannot be trusted any more.
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

// A panic in a callback ends the connection, and not the program. Who waits for an answer is told.
func ExamplePanicError() {
	ctx := context.Background()
	s := server()
	s.OnNotify = func(method string, _ json.RawMessage) { panic("no such document") }
	conn, err := lspconn.Start(ctx, s)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	conn.Call(ctx, "notes", json.RawMessage("1")) // the server notifies of something
	<-conn.Done()
	var panicked *lspconn.PanicError
	if errors.As(conn.Err(), &panicked) {
		fmt.Println(panicked.Callback, panicked.Value)
	}
	// Output: OnNotify no such document
}

// A report of the guards of an application names the connection that holds it up.
func ExampleConn_Scope() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("editor"))
	conn, err := lspconn.Start(app, server())
	if err != nil {
		log.Fatal(err)
	}
	g := conn.Scope().Guard() // of an edit that is being written to the disk
	app.Shutdown()
	conn.Close(context.Background())
	fmt.Println(app.GuardReport())
	g.Release()
	fmt.Println(app.Completion().Wait(context.Background()))
	// Output:
	// 1 guard: editor/fake ×1
	// <nil>
}
