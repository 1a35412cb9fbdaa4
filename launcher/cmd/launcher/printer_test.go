//go:build linux

package main_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	main "github.com/swansong-go/swansong/launcher/cmd/launcher"
)

// A stalled reader takes nothing until it goes on.
type stalled chan struct{}

func (s stalled) Write(text []byte) (int, error) { <-s; return len(text), nil }

// The last words wait for two seconds, and not for two of each who does not read. Who reads stderr is told why the command ends, also where
// nobody reads stdout.
func TestLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := make(stalled)
		defer close(reader)
		begun := time.Now()
		main.NewPrinter(reader, reader).Ends("up\n", errors.New("over"))
		equal(t, "how long they wait for nobody", time.Since(begun), 2*time.Second)

		var stderr strings.Builder
		main.NewPrinter(reader, &stderr).Ends("up\n", errors.New("over"))
		equal(t, "what is told", stderr.String(), "up\nover\n")

		var stdout strings.Builder
		begun = time.Now()
		main.NewPrinter(&stdout, &stderr).Ends("up\n", nil)
		equal(t, "what is printed", stdout.String(), "up\n")
		equal(t, "how long they wait for who reads", time.Since(begun), time.Duration(0))
	})
}
