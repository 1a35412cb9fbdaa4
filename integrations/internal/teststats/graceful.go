// Package teststats gives each counter of the packages graceful and httpdrain a different value. So
// a test of exported metrics fails if the exporter swaps two counters.
package teststats

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// Graceful runs programs until all counters of graceful.ReadStats are different, and none is zero.
// A test can then see whether an exporter confuses two counters. The counters may include programs
// that were run before the call.
func Graceful(t *testing.T) (st graceful.Stats) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		run := func(code int, f func(s *ctxshutdown.Swansong)) {
			err := graceful.Run(t.Context(), func(s *ctxshutdown.Swansong) error {
				f(s)
				return nil
			}, graceful.WithSignals(), graceful.WithOutput(io.Discard))
			if got := graceful.ExitCode(err); got != code {
				t.Fatalf("exit code %d, want %d: %v", got, code, err)
			}
		}
		run(0, func(s *ctxshutdown.Swansong) {
			s.Shutdown()
			synctest.Wait()
			for n := range 9 {
				graceful.Extend(s, time.Duration(11+n)*time.Second, "one more batch")
			}
		})
		for range 2 {
			run(2, func(s *ctxshutdown.Swansong) { s.Go(func(work context.Context) { <-work.Done() }) })
		}
		for n := range 3 {
			run(3, func(s *ctxshutdown.Swansong) {
				for range n + 1 {
					t.Cleanup(s.Guard().Release)
				}
			})
		}
	})
	for range 100 {
		st = graceful.ReadStats()
		values := map[uint64]bool{st.Clean: true, st.Forced: true, st.Abandoned: true, st.Late: true, st.Extensions: true, st.StillHeld: true}
		if len(values) == 6 && !values[0] && st.LongestDrain > 0 {
			return st
		}
		graceful.Run(t.Context(), func(*ctxshutdown.Swansong) error { return nil }, graceful.WithSignals(), graceful.WithOutput(io.Discard))
	}
	t.Fatalf("two counters are equal, or one is zero: %+v", st)
	return st
}
