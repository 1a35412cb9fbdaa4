package ctxshutdown_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// The main operations run inside testing/synctest bubbles, where no goroutine may stay blocked and
// times are exact.

func TestScope_WorksInSynctestBubble(t *testing.T) {
	began := func() func() time.Duration {
		start := time.Now()
		return func() time.Duration { return time.Since(start) }
	}
	for _, flow := range []struct {
		name string
		run  func(c claim, s *ctxshutdown.Swansong)
	}{
		{"Wait returns at the time of the last release", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			for i := range 5 {
				s.Go(func(ctx context.Context) { ctxshutdown.Sleep(ctx, time.Duration(i)*time.Second) })
			}
			c.awaitCompletion(s.Shutdown())
			c.equal("time", elapsed(), 4*time.Second)
		}},
		{"Wait gives up at the time-out and names the guards", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			g := s.Guard()
			defer g.Release()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var drain *ctxshutdown.DrainError
			err := s.Shutdown().Wait(ctx)
			c.isTrue("Wait returns a DrainError", errors.As(err, &drain) && errors.Is(err, context.DeadlineExceeded))
			c.equal("time", elapsed(), time.Minute)
		}},
		{"Sleep ends after its time or with its context", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			c.isTrue("Sleep returns true after the full time", ctxshutdown.Sleep(s, time.Hour))
			c.equal("time", elapsed(), time.Hour)
			slept := make(chan bool)
			for _, ctx := range []context.Context{s, child(s), context.WithValue(s, key("k"), 1)} {
				go func() { slept <- ctxshutdown.Sleep(ctx, time.Hour) }()
			}
			go func() { slept <- !ctxshutdown.Sleep(s.Work(), time.Hour) }()
			g := s.Guard()
			time.AfterFunc(time.Minute, func() { s.Shutdown() })
			for range 3 {
				c.isTrue("the stop wakes Sleep", !<-slept)
			}
			c.equal("time", elapsed(), time.Hour+time.Minute)
			c.isTrue("the stop does not wake Sleep on Work", !<-slept)
			c.equal("time", elapsed(), 2*time.Hour)
			g.Release()
		}},
		{"Sleep of no time only checks the context", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			for _, d := range []time.Duration{0, -1, -time.Hour} {
				c.isTrue("Sleep of no time on a running scope returns true", ctxshutdown.Sleep(s, d))
			}
			s.Shutdown()
			for _, d := range []time.Duration{0, -1, time.Hour} {
				c.isTrue("Sleep of no time on a stopped scope returns false", !ctxshutdown.Sleep(s, d))
			}
			c.equal("time", elapsed(), time.Duration(0))
		}},
		{"Work ends with the release of the last guard", func(c claim, s *ctxshutdown.Swansong) {
			work := s.Work()
			elapsed := began()
			s.Go(func(ctx context.Context) { ctxshutdown.Sleep(ctx, time.Second) })
			s.Shutdown()
			<-work.Done()
			c.equal("time", elapsed(), time.Second)
		}},
		{"Force ends a goroutine that waits for Work only", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			s.Go(func(ctx context.Context) { <-ctx.Done() })
			done := s.Shutdown()
			time.AfterFunc(time.Minute, func() { s.Force(nil) })
			<-done.Done()
			c.equal("time", elapsed(), time.Minute)
		}},
		{"a Group", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			g := ctxshutdown.NewGroup(s)
			g.SetLimit(2)
			for range 10 {
				g.Go(func(ctx context.Context) error {
					ctxshutdown.Sleep(ctx, time.Second)
					return nil
				})
			}
			c.isTrue("Wait returns no error", g.Wait() == nil)
			c.equal("time", elapsed(), 5*time.Second)
			c.awaitCompletion(s.Shutdown())
		}},
		{"AfterFunc", func(c claim, s *ctxshutdown.Swansong) {
			ran := make(chan time.Duration, 1)
			elapsed := began()
			context.AfterFunc(s, func() { ran <- elapsed() })
			time.Sleep(time.Second)
			s.Shutdown()
			c.equal("time", <-ran, time.Second)
		}},
		{"a deadline of the parent context", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			sub := child(owned(c.T)(context.WithTimeout(s, time.Second)))
			g, work, done := sub.Guard(), sub.Work(), sub.Completion()
			<-sub.Done()
			c.equal("time", elapsed(), time.Second)
			c.equal("Err", sub.Err() == context.DeadlineExceeded, true)
			c.isTrue("Work has not ended", work.Err() == nil)
			c.checkState(s, ctxshutdown.Running, 1)
			c.checkState(sub, ctxshutdown.ShuttingDown, 1)
			g.Release()
			<-done.Done()
			<-work.Done()
			c.equal("time", elapsed(), time.Second)
		}},
		{"a deadline before the Shutdown of a scope without a context of its own", func(c claim, s *ctxshutdown.Swansong) {
			ctx := owned(c.T)(context.WithTimeoutCause(s, time.Second, errLate))
			for _, sub := range []*ctxshutdown.Swansong{child(ctx), child(child(ctx)), child(request{ctx, "r"})} {
				time.Sleep(time.Minute)
				sub.ShutdownCause(errCause)
				c.isTrue("the scope ended by the deadline", sub.Err() == context.DeadlineExceeded && context.Cause(sub) == errLate)
			}
		}},
	} {
		t.Run(flow.name, func(t *testing.T) {
			for _, k := range kinds {
				t.Run(k.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { flow.run(claim{t, "docs/internals/core.md#semantic-6"}, k.make(t.Context())) })
				})
			}
		})
	}
}

// A root that is created in a synctest bubble and forgotten is garbage collected outside of the
// bubble. The root can be in any state, and traced or not. The cleanup that the collection runs
// must not use a channel of the bubble, because that would end the program.
func TestRoot_MayBeGarbageCollectedAfterItsSynctestBubble(t *testing.T) {
	reports := make(lines, 1000)
	logger := slog.New(slog.NewTextHandler(reports, nil))
	trace := []ctxshutdown.Option{ctxshutdown.WithTrace(), ctxshutdown.WithLogger(logger), ctxshutdown.WithName("forgotten")}
	// These functions are never called. So a goroutine that waited for one of the contexts would
	// stay blocked, which synctest reports.
	var never []context.CancelFunc
	for name, use := range map[string]func(s *ctxshutdown.Swansong){
		"untouched":   func(*ctxshutdown.Swansong) {},
		"waited for":  func(s *ctxshutdown.Swansong) { s.Done(); s.Completion().Done(); s.Work().Done() },
		"with a tree": func(s *ctxshutdown.Swansong) { child(child(s)).Guard(); child(s).Done(); child(s.Work()).Done() },
		"with a guard": func(s *ctxshutdown.Swansong) {
			s.Guard()
			context.AfterFunc(s, func() {})
			s.Completion()
		},
		"stopped":          func(s *ctxshutdown.Swansong) { s.Done(); s.Shutdown() },
		"stopped, guarded": func(s *ctxshutdown.Swansong) { s.Guard(); s.Work().Done(); s.Shutdown().Done() },
		"forced":           func(s *ctxshutdown.Swansong) { s.Guard(); s.Work().Done(); s.Force(nil).Done() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				synctest.Test(t, func(t *testing.T) {
					use(ctxshutdown.New(context.Background()))
					use(ctxshutdown.New(context.Background(), trace...))
					use(child(t.Context(), trace...))
					ctx, cancel := context.WithCancel(context.Background())
					never = append(never, cancel)
					use(ctxshutdown.New(ctx))
				})
			}
			runtime.GC()
			runtime.GC()
		})
	}
	reports.await(claim{t, "docs/internals/core.md#semantic-6"})
}
