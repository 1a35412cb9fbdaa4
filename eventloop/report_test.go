package eventloop_test

import (
	"context"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Reports count guards that the user has acquired in the scope of a loop or a pool, in addition to
// the callbacks or jobs, so that the user learns what a drain waits for.
// docs/internals/eventloop.md#scope
func TestGuardReport_CountsGuardsOfUserInAdditionToCallbacks(t *testing.T) {
	type report struct {
		Count   int
		Summary string
	}
	of := func(s *ctxshutdown.Swansong) report {
		r := s.GuardReport()
		summary, _, _ := strings.Cut(r.Summary(), ", oldest")
		return report{r.Count(), summary}
	}
	for name, opts := range map[string][]ctxshutdown.Option{"": nil, ", traced": {ctxshutdown.WithTrace()}} {
		// A traced scope has a guard for each job that has not finished, and for the running
		// callback.
		traced := opts != nil
		t.Run("loop"+name, func(t *testing.T) {
			l := startedIn(t, ctxshutdown.New(t.Context(), opts...))
			guards := acquire(l.Scope(), 5)
			testkit.Equal(t, "idle", of(l.Scope()), report{6, "loop ×5"})
			free := block(t, l)
			l.Post(nop)
			testkit.Equal(t, "guards", of(l.Scope()), report{7, "2 callbacks and loop ×5"})
			free()
			release(guards)
			awaitDone(t, l.Stop())
		})
		t.Run("Run"+name, func(t *testing.T) {
			l := eventloop.New(ctxshutdown.New(t.Context(), opts...))
			defer release(acquire(l.Scope(), 1))
			err := l.Run(t.Context(), func(context.Context) error {
				want := report{2, "loop ×1"}
				if traced {
					want.Count++ // the report also lists the guard that Run holds
				}
				testkit.Equal(t, "report during main", of(l.Scope()), want)
				return nil
			})
			testkit.ErrorIs(t, "Run", err, nil)
			testkit.Equal(t, "report after Run", of(l.Scope()), report{1, "loop ×1"})
		})
		t.Run("pool"+name, func(t *testing.T) {
			p := eventloop.NewPool(ctxshutdown.New(t.Context(), opts...), 1)
			guards := acquire(p.Scope(), 5)
			testkit.Equal(t, "idle", of(p.Scope()), report{5, "pool ×5"})
			leave := make(chan struct{})
			for range 3 {
				p.Submit(func() { <-leave })
			}
			testkit.Equal(t, "with jobs", of(p.Scope()), report{8, "3 jobs and pool ×5"})
			close(leave)
			release(guards)
			awaitDone(t, p.Stop())
		})
	}
}

func acquire(s *ctxshutdown.Swansong, n int) (guards []*ctxshutdown.Guard) {
	for range n {
		guards = append(guards, s.Guard())
	}
	return guards
}

func release(guards []*ctxshutdown.Guard) {
	for _, g := range guards {
		g.Release()
	}
}
