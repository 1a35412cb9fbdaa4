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

// Who has stopped the process is the cause of everything that ends with it.
func ExampleSignalError() {
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		syscall.Kill(os.Getpid(), syscall.SIGTERM) // somebody else does
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
