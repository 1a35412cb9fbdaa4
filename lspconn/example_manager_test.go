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

// A server is part of the scope that it is started in. The stop of that closes its connection, and waits until the process
// is gone.
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
	for _, language := range []string{"go", "c", "go"} { // two servers
		if _, err := manager.Conn(s, language); err != nil {
			log.Fatal(err)
		}
	}
	reports, err := manager.Close(context.Background())
	fmt.Println(len(reports), err)
	// Output:
	// 2 <nil>
}

// Editors that are closed have to be gone in some seconds; how many is for their authors to say, within reason.
func ExampleWithCloseTimeout() {
	servers := func(string) (lspconn.Server, error) { return server(), nil }
	_, err := lspconn.NewManager(context.Background(), servers, lspconn.WithCloseTimeout(time.Minute))
	fmt.Println(err)
	// Output:
	// lspconn: NewManager: CloseTimeout is 1m0s: it must be from 5s to 15s, or zero for 10s
}

// A server that dies is started again, up to three times in a row, and later each time. Who calls in between is told.
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
	again, err := manager.Conn(ctx, "go") // waits for the next one
	if err != nil {
		log.Fatal(err)
	}
	answer, err := again.Call(ctx, "echo", json.RawMessage("1"))
	fmt.Println(again != conn, string(answer), err)
	// Output:
	// true 1 <nil>
}
