//go:build unix

package graceful_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// A signal that no program can catch asks for nothing, wherever it stands.
func TestWithSignals_Uncatchable(t *testing.T) {
	f := func(*ctxshutdown.Swansong) error { t.Error("f was called"); return nil }
	for _, s := range []os.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		err := graceful.Run(t.Context(), f, graceful.WithSignals(os.Interrupt, s))
		equal(t, "error", text(err), fmt.Sprintf("graceful: WithSignals(%v): must be a signal that a program can catch", s))
	}
}
