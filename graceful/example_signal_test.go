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
		syscall.Kill(os.Getpid(), syscall.SIGTERM) // the signal usually comes from another process
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
