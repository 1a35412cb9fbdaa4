package shutdowntest

import (
	"context"
	"os"

	"github.com/swansong-go/swansong/internal/probe"
)

// Signals returns a context in which [graceful.Run] takes its signals from send, and none from the system. It is for tests of
// all that a second and a third signal lead to, which in a bubble are as quick as the first:
//
//	ctx, send := shutdowntest.Signals(t.Context())
//	go func() { result <- graceful.Run(ctx, serve) }()
//	synctest.Wait()
//	send(syscall.SIGTERM) // drain
//	synctest.Wait()
//	send(syscall.SIGTERM) // cut short
//
// Run sees the signals that it was configured for, by graceful.WithSignals, and in the order in which they are sent. As with
// the system's, send does not wait until a signal has been dealt with, and one that comes when 16 others are waiting is lost.
// The context is for one Run at a time. Inside of [Run], use it where the end of s is not enough: ctx then derives from s.
func Signals(ctx context.Context) (_ context.Context, send func(os.Signal)) {
	signals := make(chan os.Signal, 16)
	return context.WithValue(ctx, probe.SignalsKey{}, signals), func(sig os.Signal) {
		select {
		case signals <- sig:
		default:
		}
	}
}
