package client

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/swansong-go/swansong/internal/unwind"
)

// contain calls f on a goroutine of its own, which is all that a Goexit in it ends, and returns what it has panicked with,
// and where; nil if it has not.
func contain(f func()) (value any, stack []byte) {
	done := make(chan struct{})
	go unwind.Catch(f, func(v any, s []byte) {
		value, stack = v, s
		close(done)
	})
	<-done
	return value, stack
}

// A contained is a log handler that cannot do anybody harm: what a process says of its shutdown is said while it is asked
// for its status, while signals are taken, and under locks. What it panics at goes to stderr, where such things go when
// nobody recovers; there is no logger left to tell.
type contained struct{ slog.Handler }

func (h contained) Enabled(ctx context.Context, level slog.Level) (yes bool) {
	h.try("Enabled", func() { yes = h.Handler.Enabled(ctx, level) })
	return yes
}

func (h contained) Handle(ctx context.Context, r slog.Record) (err error) {
	h.try("Handle, of "+fmt.Sprintf("%q", r.Message), func() { err = h.Handler.Handle(ctx, r) })
	return err
}

func (h contained) try(what string, f func()) {
	if value, stack := contain(f); value != nil {
		fmt.Fprintf(os.Stderr, "client: panic in the logger (%s): %v\n\n%s\n", what, value, stack)
	}
}
