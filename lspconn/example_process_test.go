package lspconn_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/swansong-go/swansong/lspconn"
)

// The server is cat, which answers each line with the same line, and exits at the end of its input.
// A JSON-RPC library would read from the stream and write to it.
func ExampleStartProcess() {
	ctx := context.Background()
	server, err := lspconn.StartProcess(ctx, lspconn.Server{Command: []string{"cat"}})
	if err != nil {
		log.Fatal(err)
	}
	stream := server.Stream()
	// The program cat ends when its stdin is closed. A language server ends when it gets the messages
	// shutdown and exit: for one, send these here instead.
	server.OnClose(func(context.Context) error { return stream.Close() })
	answers := make(chan string, 1)
	server.Scope().Go(func(context.Context) { // as a library does, read until the stream ends
		for lines := bufio.NewScanner(stream); lines.Scan(); {
			answers <- lines.Text()
		}
	})
	fmt.Fprintln(stream, "hello")
	fmt.Println(<-answers)

	report, err := server.Close(ctx)
	fmt.Println(server.Name(), report.Outcome, report.Exit, err)
	// Output:
	// hello
	// cat Clean exit code 0 <nil>
}

// Force ends a server without asking it to exit. Done and Err also show that a server has exited by
// itself.
func ExampleProcess_force() {
	server, err := lspconn.StartProcess(context.Background(), lspconn.Server{Command: []string{"sleep", "60"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(server.Err())
	server.Force(errors.New("the window was closed"))
	server.Stream().Close() // the program reads no messages from the stream
	<-server.Done()
	report, err := server.Close(context.Background())
	fmt.Println(report.Failure, err)
	// Output:
	// <nil>
	// closing was cut short by Force: the window was closed <nil>
}
