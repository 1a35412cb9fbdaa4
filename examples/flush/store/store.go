// Package store saves what the programs in examples/flush have collected.
package store

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// Main calls f under graceful.Run and exits. The function f collects lines until s is stopped, then
// calls Save, and returns the error of Save.
func Main(f func(s *ctxshutdown.Swansong, file string) error) {
	file := flag.String("out", "collected.txt", "the file in which to save")
	flag.Parse()
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		return f(s, *file)
	}, graceful.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if err != nil {
		log.Print(err)
	}
	os.Exit(graceful.ExitCode(err))
}

// Save writes the number n to the file, as a slow database would: it takes up to 20 ms. It fails
// without writing anything if the context work ends before that, as it does after a second ^C.
func Save(work context.Context, file string, n int) error {
	if !ctxshutdown.Sleep(work, time.Duration(rand.IntN(20))*time.Millisecond) {
		return fmt.Errorf("records not saved: %d (%w)", n, context.Cause(work))
	}
	return os.WriteFile(file, fmt.Appendf(nil, "saved %d\n", n), 0o600)
}
