package ctxshutdown_test

import (
	"context"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/testkit"
)

// The test hook is called at every operation on a guard, in the goroutine that performs the
// operation, while no lock is held. Package shutdowntest relies on that.
func TestGuardHook_IsCalledAtEveryGuardOperation(t *testing.T) {
	acquire, release := []ctxkey.GuardEvent{ctxkey.BeforeAcquire, ctxkey.AfterAcquire}, []ctxkey.GuardEvent{ctxkey.BeforeRelease, ctxkey.AfterRelease}
	both := append(acquire[:2:2], release...)
	for _, test := range []struct {
		name string
		do   func(s *ctxshutdown.Swansong)
		want []ctxkey.GuardEvent
	}{
		{"Guard", func(s *ctxshutdown.Swansong) { s.Guard() }, acquire},
		{"Guard, released twice", func(s *ctxshutdown.Swansong) { g := s.Guard(); g.Release(); g.Release() }, both},
		{"TryGuard", func(s *ctxshutdown.Swansong) { s.TryGuard() }, acquire},
		{"TryGuard, refused", func(s *ctxshutdown.Swansong) { s.Shutdown(); s.TryGuard() }, acquire[:1]},
		{"Acquire", func(s *ctxshutdown.Swansong) { ctxshutdown.Acquire(s) }, acquire},
		{"Acquire, of a child", func(s *ctxshutdown.Swansong) { ctxshutdown.Acquire(child(child(s))) }, acquire},
		{"Acquire, of a root of its own", func(s *ctxshutdown.Swansong) { ctxshutdown.Acquire(ctxshutdown.New(s)) }, acquire},
		{"Acquire, of nothing", func(s *ctxshutdown.Swansong) { ctxshutdown.Acquire(context.Background()) }, nil},
		{"Clone", func(s *ctxshutdown.Swansong) { s.Guard().Clone() }, append(acquire[:2:2], acquire...)},
		{"State, GuardReport and Completion", func(s *ctxshutdown.Swansong) { s.State(); s.GuardReport(); s.Completion() }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []ctxkey.GuardEvent
			s := ctxshutdown.New(context.WithValue(t.Context(), ctxkey.Hook{}, ctxkey.GuardHook(func(m ctxkey.GuardEvent) { got = append(got, m) })))
			test.do(s)
			testkit.Equal(t, "events", got, test.want)
		})
	}
	t.Run("the hook may stop the scope", func(t *testing.T) {
		for _, at := range both {
			var s *ctxshutdown.Swansong
			s = ctxshutdown.New(context.WithValue(t.Context(), ctxkey.Hook{}, ctxkey.GuardHook(func(m ctxkey.GuardEvent) {
				if m == at {
					s.Shutdown()
				}
			})))
			g, ok := s.TryGuard()
			if want := at != ctxkey.BeforeAcquire; ok != want {
				t.Errorf("stopped %v: TryGuard returns %v", at, ok)
			}
			g.Release()
			claim{t, "stopped " + at.String()}.checkState(s, ctxshutdown.Complete, 0)
		}
	})
}
