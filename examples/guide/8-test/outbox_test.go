package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swansong-go/swansong/ctxshutdown"
	outbox "github.com/swansong-go/swansong/examples/guide/8-test"
	"github.com/swansong-go/swansong/shutdowntest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOutbox_SendsEveryAcceptedMail(t *testing.T) {
	shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
		var sent, accepted atomic.Int32
		box := outbox.New(s, 2, func(context.Context, string) {
			time.Sleep(time.Millisecond) // takes no real time in a bubble
			sent.Add(1)
		})
		for range 5 {
			if box.Accept("welcome") {
				accepted.Add(1)
			}
			time.Sleep(300 * time.Microsecond)
		}
		return func() { // Run calls this function after the drain, when a program would exit
			if sent.Load() != accepted.Load() {
				t.Errorf("%d of %d accepted mails were sent", sent.Load(), accepted.Load())
			}
		}
	})
}
