package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/lspconn"
)

// A connection belongs to the scope in which it is started. Stopping that scope closes the
// connection and waits until the process has ended.
func ExampleStart() {
	s := ctxshutdown.New(context.Background())
	_, err := lspconn.Start(s, lspconn.Server{Command: []string{"/no/such/server"}})
	fmt.Println(errors.Is(err, fs.ErrNotExist))

	conn, err := lspconn.Start(s, lspconn.Server{Command: []string{"gopls"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Shutdown().Wait(context.Background()), conn.State())
	// Prints:
	// true
	// <nil> Closed
}

func ExampleNewManager() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	manager, err := lspconn.NewManager(s, func(folder string) (lspconn.Server, error) {
		return lspconn.Server{Command: []string{"gopls"}, Dir: folder}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// The folder "." comes twice. The second time, the manager returns the connection that it has.
	// So it starts two servers.
	for _, folder := range []string{".", "/", "."} {
		if _, err := manager.Conn(s, folder); err != nil {
			log.Fatal(err)
		}
	}
	reports, err := manager.Close(context.Background())
	fmt.Println(len(reports), err)
	// Prints:
	// 2 <nil>
}

// The deadline of Manager.Close can be at most 15 seconds, because an editor that the user has
// closed should be gone within seconds.
func ExampleWithCloseTimeout() {
	servers := func(string) (lspconn.Server, error) { return lspconn.Server{Command: []string{"gopls"}}, nil }
	_, err := lspconn.NewManager(context.Background(), servers, lspconn.WithCloseTimeout(time.Minute))
	fmt.Println(err)
	// Output:
	// lspconn: NewManager: CloseTimeout is 1m0s; it must be between 1s and 15s, or zero for the default of 10s
}

// A server that crashes is restarted up to three times in a row, after a longer wait each time.
// Calls before the restart return the error of the failed connection.
func ExampleWithRestart() {
	ctx := context.Background()
	starts := 0
	servers := func(string) (lspconn.Server, error) {
		if starts++; starts == 1 {
			// gopls does not know the flag, and exits at once.
			return lspconn.Server{Command: []string{"gopls", "-no-such-flag"}}, nil
		}
		return lspconn.Server{Command: []string{"gopls"}}, nil
	}
	manager, err := lspconn.NewManager(ctx, servers, lspconn.WithRestart(lspconn.Restart{Max: 3, First: time.Millisecond}))
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	conn, err := manager.Conn(ctx, "go")
	if err != nil {
		log.Fatal(err)
	}
	<-conn.Done()
	again, err := manager.Conn(ctx, "go") // blocks until the server has been restarted
	if err != nil {
		log.Fatal(err)
	}
	_, err = again.Call(ctx, "workspace/symbol", json.RawMessage(`{"query": "main"}`))
	fmt.Println(again != conn, err)
	// Prints:
	// true <nil>
}

// A program that keeps the text of open documents sends them to a server that was started again.
func ExampleWithOnRestart() {
	ctx := context.Background()
	starts := 0
	servers := func(string) (lspconn.Server, error) {
		if starts++; starts == 1 {
			// gopls does not know the flag, and exits at once.
			return lspconn.Server{Command: []string{"gopls", "-no-such-flag"}}, nil
		}
		return lspconn.Server{Command: []string{"gopls"}}, nil
	}
	reopened := make(chan error, 1)
	manager, err := lspconn.NewManager(ctx, servers, lspconn.WithRestart(lspconn.Restart{Max: 3, First: time.Millisecond}),
		lspconn.WithOnRestart(func(ctx context.Context, key string, conn *lspconn.Conn) {
			fmt.Println("reopen the documents of", key)
			reopened <- lspconn.Notify(ctx, conn, "textDocument/didOpen", json.RawMessage(
				`{"textDocument": {"uri": "file:///new.go", "languageId": "go", "version": 7, "text": "package main"}}`))
		}))
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	conn, err := manager.Conn(ctx, "go")
	if err != nil {
		log.Fatal(err)
	}
	<-conn.Done()
	if _, err := manager.Conn(ctx, "go"); err != nil { // this call starts gopls again
		log.Fatal(err)
	}
	fmt.Println(<-reopened)
	// Prints:
	// reopen the documents of go
	// <nil>
}

// An editor tells its user when a server has failed.
func ExampleWithOnFailure() {
	ctx := context.Background()
	servers := func(string) (lspconn.Server, error) {
		// gopls does not know the flag, and exits at once.
		return lspconn.Server{Command: []string{"gopls", "-no-such-flag"}}, nil
	}
	failed := make(chan error, 1)
	manager, err := lspconn.NewManager(ctx, servers, lspconn.WithOnFailure(func(key string, err error) { failed <- err }))
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	if _, err := manager.Conn(ctx, "go"); err != nil {
		log.Fatal(err)
	}
	var exited *lspconn.ExitError
	fmt.Println(errors.As(<-failed, &exited))
	// Prints: true
}

// An editor closes the server of a workspace when the user closes the workspace.
func ExampleManager_CloseKey() {
	ctx := context.Background()
	manager, err := lspconn.NewManager(ctx, func(folder string) (lspconn.Server, error) {
		return lspconn.Server{Command: []string{"gopls"}, Dir: folder}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	conn, err := manager.Conn(ctx, "/")
	if err != nil {
		log.Fatal(err)
	}
	conn.Ready(ctx)
	report, err := manager.CloseKey(ctx, "/")
	fmt.Println(report.Key, report.Outcome, err)
	// Prints: / Clean <nil>
}
