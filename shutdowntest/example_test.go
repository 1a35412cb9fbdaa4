package shutdowntest_test

import (
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/shutdowntest"
)

// A test consists of a scenario and a check. This check requires that every accepted job is done
// when everything has drained.
func ExampleRun() {
	runs("TestJobs", func(t *testing.T) { // stands for: func TestJobs(t *testing.T) {
		shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
			accepted, done := 0, make(chan struct{}, 10)
			for range 10 {
				job, ok := s.TryGuard()
				if !ok {
					break
				}
				accepted++
				go func() {
					defer job.Release()
					time.Sleep(time.Millisecond)
					done <- struct{}{}
				}()
			}
			return func() {
				if len(done) != accepted {
					t.Errorf("%d of %d accepted jobs are done", len(done), accepted)
				}
			}
		})
	})
}

// A scenario that takes longer than ten seconds to drain, by the clock of the bubble, sets a longer
// limit.
func ExampleWithin() {
	runs("TestExport", func(t *testing.T) { // stands for: func TestExport(t *testing.T) {
		shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
			export := s.Guard()
			defer export.Release()
			time.Sleep(5 * time.Minute)
			return nil
		}, shutdowntest.Within(10*time.Minute))
	})
}

// TestExamples_RunWithoutFailure runs the tests that the examples show, because an example has no
// testing.T.
func TestExamples_RunWithoutFailure(t *testing.T) {
	runs = func(name string, test func(*testing.T)) { t.Run(name, test) }
	defer func() { runs = func(string, func(*testing.T)) {} }()
	ExampleRun()
	ExampleWithin()
}

var runs = func(name string, test func(*testing.T)) {}
