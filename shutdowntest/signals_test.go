package shutdowntest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/shutdowntest"
)

// The first signal begins the drain, the second one ends it early, and after the third one Run
// gives up. Signals that are not configured have no effect.
func TestSignals_EachSignalStartsNextPhase(t *testing.T) {
	for _, c := range []struct {
		name    string
		signals []os.Signal
		listens bool // whether the work returns when it is cancelled
		code    int
		after   time.Duration
	}{
		{"one signal", []os.Signal{syscall.SIGTERM}, true, 0, time.Second},
		{"two signals", []os.Signal{syscall.SIGTERM, os.Interrupt}, true, 2, 0},
		{"three signals", []os.Signal{syscall.SIGTERM, os.Interrupt, os.Interrupt}, false, 3, 0},
		{"a signal that Run ignores, and one signal", []os.Signal{os.Kill, os.Interrupt}, true, 0, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, send := shutdowntest.Signals(t.Context())
				stuck := make(chan struct{})
				result := make(chan error)
				go func() {
					result <- graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
						s.Go(func(work context.Context) {
							<-s.Done()
							if !c.listens {
								<-stuck
							}
							ctxshutdown.Sleep(work, time.Second)
						})
						<-s.Done()
						return nil
					}, graceful.WithOutput(io.Discard))
				}()
				begin := time.Now()
				for _, sig := range c.signals {
					synctest.Wait()
					send(sig)
				}
				testkit.Equal(t, "exit code", graceful.ExitCode(<-result), c.code)
				testkit.Equal(t, "time", time.Since(begin), c.after)
				close(stuck)
			})
		})
	}
}

// A call of graceful.Run that is configured without signals receives none.
func TestSignals_AreIgnoredByRunConfiguredWithoutSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, send := shutdowntest.Signals(t.Context())
		send(os.Interrupt)
		err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
			if ctxshutdown.Sleep(s, time.Hour) {
				return errors.New("not stopped for an hour")
			}
			return nil
		}, graceful.WithSignals(), graceful.WithOutput(io.Discard))
		testkit.Equal(t, "error", fmt.Sprint(err), "not stopped for an hour")
	})
}

// send does not block. Up to sixteen signals are buffered, and the next one is lost.
func TestSignals_SendBuffersSixteenSignalsAndDropsNext(t *testing.T) {
	for others, want := range map[int]string{15: "<nil>", 16: "not stopped for an hour"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, send := shutdowntest.Signals(t.Context())
			for range others {
				send(os.Kill)
			}
			send(os.Interrupt)
			err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
				if ctxshutdown.Sleep(s, time.Hour) {
					return errors.New("not stopped for an hour")
				}
				return nil
			}, graceful.WithOutput(io.Discard))
			testkit.Equal(t, fmt.Sprintf("error, behind %d others", others), fmt.Sprint(err), want)
		})
	}
}

// A second signal ends the drain early.
func ExampleSignals() {
	ctx, send := shutdowntest.Signals(context.Background())
	err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		s.Go(func(work context.Context) {
			<-s.Done()
			send(os.Interrupt)
			<-work.Done()
			fmt.Println("cut short")
		})
		send(syscall.SIGTERM)
		<-s.Done()
		return nil
	}, graceful.WithOutput(io.Discard))
	fmt.Println("exit code:", graceful.ExitCode(err))
	// Output:
	// cut short
	// exit code: 2
}
