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

// The examples start gopls in the root of a Go module. go test does not run them as examples,
// because gopls may not be installed. TestExamples_PrintExpectedOutput runs them and compares the
// output.

func Example() {
	// Programs usually pass their ctxshutdown.Swansong to Start, as ctx: its Shutdown then closes
	// the connection.
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err) // gopls is not on the PATH, or cannot be executed
	}
	symbols, err := conn.Call(ctx, "workspace/symbol", json.RawMessage(`{"query": "main"}`))
	fmt.Println(len(symbols) > 0, err) // symbols is the result as the server has sent it

	report, err := conn.Close(ctx)
	fmt.Println(report.Outcome, report.Exit, report.Survivors, err)

	_, err = conn.Call(ctx, "workspace/symbol", nil)
	fmt.Println(errors.Is(err, lspconn.ErrClosing))
	// Prints:
	// true <nil>
	// Clean exit code 0 [] <nil>
	// true
}

func ExampleManager() {
	ctx := context.Background()
	servers := func(key string) (lspconn.Server, error) {
		if key != "go" {
			return lspconn.Server{}, errors.New("not configured")
		}
		return lspconn.Server{Command: []string{"gopls"}}, nil
	}
	manager, err := lspconn.NewManager(ctx, servers, lspconn.WithRestart(lspconn.Restart{Max: 3}))
	if err != nil {
		log.Fatal(err)
	}
	conn, err := manager.Conn(ctx, "go") // this call starts the server
	if err != nil {
		log.Fatal(err)
	}
	_, err = conn.Call(ctx, "workspace/symbol", json.RawMessage(`{"query": "main"}`))
	fmt.Println(err)
	_, err = manager.Conn(ctx, "cobol")
	fmt.Println(err)

	reports, err := manager.Close(ctx) // all connections are closed in parallel, within 10 s
	for _, r := range reports {
		fmt.Println(r.Name, r.Outcome)
	}
	fmt.Println(err)
	// Prints:
	// <nil>
	// lspconn: no server for the key "cobol": not configured
	// gopls Clean
	// <nil>
}

func ExampleConn_NotifyLatest() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	lspconn.Notify(ctx, conn, "textDocument/didOpen", json.RawMessage(
		`{"textDocument": {"uri": "file:///new.go", "languageId": "go", "version": 0, "text": "package main"}}`))
	var last *lspconn.Delivery
	// A notification replaces the previous one if the previous one has not been written yet. So
	// each notification has to contain the whole text.
	for version := range 1000 {
		last = conn.NotifyLatest("new.go", "textDocument/didChange", json.RawMessage(fmt.Sprintf(
			`{"textDocument": {"uri": "file:///new.go", "version": %d}, "contentChanges": [{"text": "package main // %[1]d"}]}`, version+1)))
	}
	fmt.Println(last.Wait(ctx))
	// Prints: <nil>
}

// An editor answers the requests of the server, here for its settings.
func ExampleServer() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{
		Command:    []string{"gopls"},
		Initialize: json.RawMessage(`{"capabilities": {"workspace": {"configuration": true}}, "workspaceFolders": [{"uri": "file:///tmp", "name": "tmp"}]}`),
		OnRequest: func(ctx context.Context, method string, params json.RawMessage) (any, error) {
			if method == "workspace/configuration" {
				return []any{map[string]any{"gofumpt": true}}, nil
			}
			return nil, &lspconn.ResponseError{Code: lspconn.CodeMethodNotFound, Message: method}
		},
		CloseTimeout: 15 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Call(ctx, "workspace/symbol", json.RawMessage(`{"query": "main"}`))
	fmt.Println(err)
	// Prints: <nil>
}

// A handler that asks the user calls Async first, so that the messages behind its request do not
// wait.
func ExampleAsync() {
	ctx := context.Background()
	answer := make(chan string) // the goroutine that asks the user sends the answer
	conn, err := lspconn.Start(ctx, lspconn.Server{
		Command: []string{"gopls"},
		OnRequest: func(ctx context.Context, method string, params json.RawMessage) (any, error) {
			if method != "window/showMessageRequest" {
				return nil, nil
			}
			lspconn.Async(ctx)
			select {
			case title := <-answer:
				return map[string]string{"title": title}, nil
			case <-ctx.Done(): // the server has cancelled its request, or the connection closes
				return nil, ctx.Err()
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	conn.Ready(ctx)
	report, err := conn.Close(ctx)
	fmt.Println(report.Outcome, err)
	// Prints: Clean <nil>
}

func ExampleConnError() {
	ctx := context.Background()
	conn, err := lspconn.Start(ctx, lspconn.Server{Command: []string{"gopls", "-no-such-flag"}})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	<-conn.Done()
	var failed *lspconn.ConnError
	if errors.As(conn.Err(), &failed) {
		fmt.Println(failed.Exit)
		fmt.Println(len(failed.Stderr) > 0) // what the server has printed last
	}
	fmt.Println(conn.State())
	// Prints:
	// exit code 2
	// true
	// Failed
}
