package ctxshutdown_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/probe"
)

// What package shutdowntest relies on: it is told of every guard operation, in the goroutine that is at it, with no lock
// held, so that it may stop the scope there.
func TestProbe(t *testing.T) {
	acquire, release := []probe.Moment{probe.Acquiring, probe.Acquired}, []probe.Moment{probe.Releasing, probe.Released}
	both := append(acquire[:2:2], release...)
	for _, test := range []struct {
		name string
		do   func(s *ctxshutdown.Swansong)
		want []probe.Moment
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
		{"looks", func(s *ctxshutdown.Swansong) { s.State(); s.GuardReport(); s.Completion() }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []probe.Moment
			s := ctxshutdown.New(context.WithValue(t.Context(), probe.Key{}, probe.Func(func(m probe.Moment) { got = append(got, m) })))
			test.do(s)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("moments (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("the scope may be stopped at any moment", func(t *testing.T) {
		for _, at := range both {
			var s *ctxshutdown.Swansong
			s = ctxshutdown.New(context.WithValue(t.Context(), probe.Key{}, probe.Func(func(m probe.Moment) {
				if m == at {
					s.Shutdown()
				}
			})))
			g, ok := s.TryGuard()
			if want := at != probe.Acquiring; ok != want {
				t.Errorf("stopped %v: admitted is %v", at, ok)
			}
			g.Release()
			claim{t, "stopped " + at.String()}.sees(s, ctxshutdown.Complete, 0)
		}
	})
}
