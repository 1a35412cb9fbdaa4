package shutdowntest

import (
	"context"
	"os"

	"github.com/swansong-go/swansong/internal/ctxkey"
)

// Signals returns a context with which [graceful.Run] receives its signals from send instead of the
// operating system. It serves tests of a second and a third signal, which in a synctest bubble take
// no time:
//
//	ctx, send := shutdowntest.Signals(t.Context())
//	go func() { result <- graceful.Run(ctx, serve) }()
//	synctest.Wait()
//	send(syscall.SIGTERM) // drain
//	synctest.Wait()
//	send(os.Interrupt) // cut short
//
// A second SIGTERM within a second would not count.
//
// Run receives the signals that graceful.WithSignals configures, in the order in which they are
// sent. As with signals of the system, send does not wait until a signal has been handled, and a
// signal is lost if 16 others are waiting. The context is for one Run at a time. Inside of [Run],
// use it with a ctx that derives from s, for tests that the end of s does not cover.
func Signals(ctx context.Context) (_ context.Context, send func(os.Signal)) {
	signals := make(chan os.Signal, 16)
	return context.WithValue(ctx, ctxkey.Signals{}, signals), func(sig os.Signal) {
		select {
		case signals <- sig:
		default:
		}
	}
}
