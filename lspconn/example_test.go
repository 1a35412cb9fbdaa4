package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/swansong-go/swansong/lspconn"
)

// server returns a stand-in for {Command: []string{"gopls"}}, so that the examples run without
// gopls.
func server() lspconn.Server { return fake(role{}) }

func Example() {
	// This is usually the program's ctxshutdown.Swansong, whose Shutdown then closes the
	// connection.
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, server())
	if err != nil {
		log.Fatal(err) // the server program does not exist or cannot be executed
	}
	result, err := conn.Call(ctx, "echo", json.RawMessage(`{"line": 1}`))
	fmt.Println(string(result), err)

	report, err := conn.Close(ctx)
	fmt.Println(report.Outcome, report.Exit, report.Survivors, err)

	_, err = conn.Call(ctx, "echo", nil)
	fmt.Println(errors.Is(err, lspconn.ErrClosing))
	// Output:
	// {"line": 1} <nil>
	// Clean exit code 0 [] <nil>
	// true
}

func ExampleManager() {
	ctx := context.Background()
	servers := func(key string) (lspconn.Server, error) {
		if key != "go" {
			return lspconn.Server{}, errors.New("not configured")
		}
		return server(), nil
	}
	manager, err := lspconn.NewManager(ctx, servers, lspconn.WithRestart(lspconn.Restart{Max: 3}))
	if err != nil {
		log.Fatal(err)
	}
	conn, err := manager.Conn(ctx, "go") // starts the server
	if err != nil {
		log.Fatal(err)
	}
	result, err := conn.Call(ctx, "echo", json.RawMessage("1"))
	fmt.Println(string(result), err)
	_, err = manager.Conn(ctx, "cobol")
	fmt.Println(err)

	reports, err := manager.Close(ctx) // all connections are closed in parallel, within 10 s
	for _, r := range reports {
		fmt.Println(r.Name, r.Outcome)
	}
	fmt.Println(err)
	// Output:
	// 1 <nil>
	// lspconn: no server for "cobol": not configured
	// fake Clean
	// <nil>
}

func ExampleConn_NotifyLatest() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, server())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	var last *lspconn.Delivery
	// Each notification replaces the previous one if that has not been written yet.
	for version := range 1000 {
		last = conn.NotifyLatest("main.go", "note", json.RawMessage(fmt.Sprint(version)))
	}
	fmt.Println(last.Wait(ctx))
	// Output: <nil>
}

func ExampleServer() {
	ctx := context.Background()
	s := server()
	s.OnRequest = func(ctx context.Context, method string, params json.RawMessage) (any, error) {
		if method != "client/ask" {
			return nil, &lspconn.ResponseError{Code: lspconn.CodeMethodNotFound, Message: method}
		}
		return "an answer", nil
	}
	s.CloseTimeout = 15 * time.Second
	conn, err := lspconn.Start(ctx, s)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	result, err := conn.Call(ctx, "ask", nil) // this server sends a request of its own before it answers
	fmt.Println(string(result), err)
	// Output: "an answer" <nil>
}

// A handler that asks the user runs aside, so that the messages behind its request do not wait.
func ExampleAsync() {
	ctx := context.Background()
	answer := make(chan string)
	s := server()
	s.OnRequest = func(ctx context.Context, method string, params json.RawMessage) (any, error) {
		lspconn.Async(ctx)
		select {
		case text := <-answer:
			return text, nil
		case <-ctx.Done(): // the server has cancelled its request, or the connection closes
			return nil, ctx.Err()
		}
	}
	conn, err := lspconn.Start(ctx, s)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	go func() { answer <- "yes" }()
	result, err := conn.Call(ctx, "ask", nil) // this server sends a request of its own before it answers
	fmt.Println(string(result), err)
	// Output: "yes" <nil>
}

func ExampleConnError() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, fake(role{Behaviour: behaviours{Code: 2, Stderr: "panic: at the disco\n"}}))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Call(ctx, "die", nil)
	var failed *lspconn.ConnError
	if errors.As(err, &failed) {
		fmt.Println(failed.Exit)
		fmt.Print(failed.Stderr)
	}
	<-conn.Done()
	fmt.Println(conn.State())
	// Output:
	// exit code 2
	// panic: at the disco
	// Failed
}
