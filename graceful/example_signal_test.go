//go:build unix

package graceful_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// The cause of the stop is a SignalError that names the signal. Every context of the program has
// this cause.
func ExampleSignalError() {
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		syscall.Kill(os.Getpid(), syscall.SIGTERM) // usually another process sends the signal
		<-s.Done()
		var by *graceful.SignalError
		if errors.As(context.Cause(s), &by) {
			fmt.Println("stopped by", by.Signal)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// stopped by terminated
	// <nil>
}

// On SIGHUP, the process reads its configuration again and goes on serving.
func ExampleWithReload() {
	reloaded := make(chan struct{})
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		graceful.Ready(s)
		syscall.Kill(os.Getpid(), syscall.SIGHUP) // as the command "systemctl reload" does
		<-reloaded
		fmt.Println("still serving:", s.Err() == nil)
		return nil
	}, graceful.WithReload(func(context.Context) error {
		fmt.Println("reading the configuration")
		close(reloaded)
		return nil
	}))
	fmt.Println(err)
	// Output:
	// reading the configuration
	// still serving: true
	// <nil>
}
