package client

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/swansong-go/swansong/internal/panics"
)

// callSafely calls f on a goroutine of its own, so that runtime.Goexit in f ends only that
// goroutine. If f panics, callSafely returns the value and the stack of the panic. If f returns,
// the value is nil.
func callSafely(f func()) (value any, stack []byte) {
	done := make(chan struct{})
	go panics.Catch(f, func(v any, s []byte) {
		value, stack = v, s
		close(done)
	})
	<-done
	return value, stack
}

// A safeHandler passes log records on to another handler, recovers panics of that handler, and
// prints them on stderr. This package logs while it handles calls and signals and while it holds
// locks, so without the safeHandler a panic would block the shutdown.
type safeHandler struct{ slog.Handler }

func (h safeHandler) Enabled(ctx context.Context, level slog.Level) (yes bool) {
	h.try("Enabled", func() { yes = h.Handler.Enabled(ctx, level) })
	return yes
}

func (h safeHandler) Handle(ctx context.Context, r slog.Record) (err error) {
	h.try(fmt.Sprintf("Handle %q", r.Message), func() { err = h.Handler.Handle(ctx, r) })
	return err
}

func (h safeHandler) try(what string, f func()) {
	if value, stack := callSafely(f); value != nil {
		fmt.Fprintf(os.Stderr, "client: panic in the logger (%s): %v\n\n%s\n", what, value, stack)
	}
}
