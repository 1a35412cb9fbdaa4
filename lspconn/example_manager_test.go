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

	conn, err := lspconn.Start(s, server())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Shutdown().Wait(context.Background()), conn.State())
	// Output:
	// true
	// <nil> Closed
}

func ExampleNewManager() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	manager, err := lspconn.NewManager(s, func(language string) (lspconn.Server, error) { return server(), nil })
	if err != nil {
		log.Fatal(err)
	}
	for _, language := range []string{"go", "c", "go"} { // two of these are the same, so two servers are started
		if _, err := manager.Conn(s, language); err != nil {
			log.Fatal(err)
		}
	}
	reports, err := manager.Close(context.Background())
	fmt.Println(len(reports), err)
	// Output:
	// 2 <nil>
}

// The deadline is configurable within limits: an editor that the user has closed should be gone
// within seconds.
func ExampleWithCloseTimeout() {
	servers := func(string) (lspconn.Server, error) { return server(), nil }
	_, err := lspconn.NewManager(context.Background(), servers, lspconn.WithCloseTimeout(time.Minute))
	fmt.Println(err)
	// Output:
	// lspconn: NewManager: CloseTimeout is 1m0s; it must be between 1s and 15s, or zero for 10s
}

// A server that crashes is restarted up to three times in a row, after a longer wait each time.
// Calls before the restart return the error of the failed connection.
func ExampleWithRestart() {
	ctx := context.Background()
	mortal := func(string) (lspconn.Server, error) {
		return fake(role{Behaviour: behaviours{Code: 2}}), nil
	}
	manager, err := lspconn.NewManager(ctx, mortal, lspconn.WithRestart(lspconn.Restart{Max: 3, First: time.Millisecond}))
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	conn, err := manager.Conn(ctx, "go")
	if err != nil {
		log.Fatal(err)
	}
	conn.Call(ctx, "die", nil)
	<-conn.Done()
	again, err := manager.Conn(ctx, "go") // blocks until the restart
	if err != nil {
		log.Fatal(err)
	}
	answer, err := again.Call(ctx, "echo", json.RawMessage("1"))
	fmt.Println(again != conn, string(answer), err)
	// Output:
	// true 1 <nil>
}

// A program that keeps the text of open documents sends them to a server that was started again.
func ExampleWithOnRestart() {
	ctx := context.Background()
	mortal := func(string) (lspconn.Server, error) {
		return fake(role{Behaviour: behaviours{Code: 2}}), nil
	}
	manager, err := lspconn.NewManager(ctx, mortal, lspconn.WithRestart(lspconn.Restart{Max: 3, First: time.Millisecond}),
		lspconn.WithOnRestart(func(ctx context.Context, key string, conn *lspconn.Conn) {
			fmt.Println("reopen the documents of", key)
			lspconn.Notify(ctx, conn, "textDocument/didOpen", map[string]string{"uri": "file:///main.go"})
		}))
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	for range 2 {
		conn, err := manager.Conn(ctx, "go")
		if err != nil {
			log.Fatal(err)
		}
		conn.Call(ctx, "die", nil)
		<-conn.Done()
	}
	// Output: reopen the documents of go
}

// An editor tells its user when a server has failed.
func ExampleWithOnFailure() {
	ctx := context.Background()
	mortal := func(string) (lspconn.Server, error) {
		return fake(role{Behaviour: behaviours{Code: 2}}), nil
	}
	told := make(chan string, 1)
	manager, err := lspconn.NewManager(ctx, mortal, lspconn.WithOnFailure(func(key string, err error) {
		var exited *lspconn.ExitError
		told <- fmt.Sprint(key, ": has exited: ", errors.As(err, &exited))
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	conn, err := manager.Conn(ctx, "go")
	if err != nil {
		log.Fatal(err)
	}
	conn.Call(ctx, "die", nil)
	fmt.Println(<-told)
	// Output: go: has exited: true
}

// An editor closes the server of a workspace when the user closes the workspace.
func ExampleManager_CloseKey() {
	ctx := context.Background()
	manager, err := lspconn.NewManager(ctx, func(workspace string) (lspconn.Server, error) { return server(), nil })
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	conn, err := manager.Conn(ctx, "/home/me/project")
	if err != nil {
		log.Fatal(err)
	}
	conn.Ready(ctx)
	report, err := manager.CloseKey(ctx, "/home/me/project")
	fmt.Println(report.Key, report.Outcome, err)
	// Output: /home/me/project Clean <nil>
}
