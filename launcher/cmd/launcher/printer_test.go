//go:build linux

package main_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	main "github.com/swansong-go/swansong/launcher/cmd/launcher"
)

// A stalled writer blocks until the test closes its channel.
type stalled chan struct{}

func (s stalled) Write(text []byte) (int, error) { <-s; return len(text), nil }

// At its end, the launcher waits until its stdout and stderr have been read, but at most two
// seconds for both together. It prints its error on stderr even if no process reads its stdout.
func TestPrinter_AtExitWaitsAtMostTwoSecondsForReadersOfOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := make(stalled)
		defer close(reader)
		begun := time.Now()
		main.NewPrinter(reader, reader).Ends("up\n", errors.New("over"))
		testkit.Equal(t, "time until end returns if nothing is read", time.Since(begun), 2*time.Second)

		var stderr strings.Builder
		main.NewPrinter(reader, &stderr).Ends("up\n", errors.New("over"))
		testkit.Equal(t, "stderr", stderr.String(), "up\nover\n")

		var stdout strings.Builder
		begun = time.Now()
		main.NewPrinter(&stdout, &stderr).Ends("up\n", nil)
		testkit.Equal(t, "stdout", stdout.String(), "up\n")
		testkit.Equal(t, "time until end returns if both are read", time.Since(begun), time.Duration(0))
	})
}
