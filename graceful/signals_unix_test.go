//go:build unix

package graceful_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
)

// If the list of signals contains one that no program can catch, at any position, Run returns an
// error.
func TestWithSignals_RejectsUncatchableSignal(t *testing.T) {
	f := func(*ctxshutdown.Swansong) error { t.Error("f was called"); return nil }
	for _, s := range []os.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		err := graceful.Run(t.Context(), f, graceful.WithSignals(os.Interrupt, s))
		testkit.Equal(t, "error", testkit.ErrorText(err), fmt.Sprintf("graceful: WithSignals(%v): a program cannot catch this signal", s))
	}
}
