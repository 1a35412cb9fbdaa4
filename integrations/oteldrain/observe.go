package oteldrain

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/integrations/internal/topscopes"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scopeName = "github.com/swansong-go/swansong/integrations/oteldrain"

var states = []struct {
	state ctxshutdown.State
	label string
}{
	{ctxshutdown.Running, "running"},
	{ctxshutdown.ShuttingDown, "shutting_down"},
	{ctxshutdown.Complete, "complete"},
}

// Observe registers metrics with a meter of mp: those of s and of all scopes below s, and the
// counters of [graceful.ReadStats] and [httpdrain.ReadStats]. The metrics cost nothing between
// collections. The function stop unregisters them; further calls of stop do nothing.
//
// To observe several scopes, give each call of Observe different [Attributes]. Give all but one of
// the calls [WithoutProcess], because both ReadStats count for the whole program.
func Observe(s *ctxshutdown.Swansong, mp metric.MeterProvider, opts ...Option) (stop func() error, err error) {
	switch {
	case s == nil:
		return nil, errors.New("oteldrain: Observe: nil scope; create one with ctxshutdown.New")
	case mp == nil:
		return nil, errors.New("oteldrain: Observe: nil metric.MeterProvider; use otel.GetMeterProvider() for the global one")
	}
	l := settings{top: topscopes.DefaultTop}
	for _, o := range opts {
		if o == nil {
			continue
		}
		if err := o.applyTo(&l); err != nil {
			return nil, fmt.Errorf("oteldrain: %w", err)
		}
	}
	m := &instruments{meter: mp.Meter(scopeName)}
	guards := m.upDown("swansong.guard.count", "{guard}", "Guards held, by scope path.")
	oldest := m.gauge("swansong.guard.oldest_age", "s", "Age of the oldest guard, by scope path, if traced.")
	state := m.upDown("swansong.scope.state", "1", "1 for the state that the scope is in.")
	callbacks := []metric.Callback{func(_ context.Context, o metric.Observer) error {
		for _, g := range topscopes.Of(s.GuardReport(), l.top, l.depth) {
			attributes := l.measurement(attribute.String("swansong.scope", g.Path))
			o.ObserveInt64(guards, int64(g.Count), attributes)
			if g.Traced {
				o.ObserveFloat64(oldest, g.Oldest.Seconds(), attributes)
			}
		}
		now := s.State()
		for _, st := range states {
			v := int64(0)
			if st.state == now {
				v = 1
			}
			o.ObserveInt64(state, v, l.measurement(attribute.String("swansong.state", st.label)))
		}
		return nil
	}}
	if !l.withoutProcess {
		callbacks = append(callbacks, m.process())
	}
	if m.err != nil {
		return nil, fmt.Errorf("oteldrain: %w", m.err)
	}
	reg, err := m.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		for _, f := range callbacks {
			if err := f(ctx, o); err != nil {
				return err
			}
		}
		return nil
	}, m.all...)
	if err != nil {
		return nil, fmt.Errorf("oteldrain: %w", err)
	}
	return sync.OnceValue(reg.Unregister), nil
}

// An instruments value creates instruments and collects the errors.
type instruments struct {
	meter metric.Meter
	all   []metric.Observable
	err   error
}

// add records the instrument i, and err if it could not be created.
func add[I metric.Observable](m *instruments, i I, err error) I {
	m.all = append(m.all, i)
	m.err = errors.Join(m.err, err)
	return i
}

func (m *instruments) upDown(name, unit, description string) metric.Int64Observable {
	i, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	return add(m, i, err)
}

func (m *instruments) counter(name, unit, description string) metric.Int64Observable {
	i, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	return add(m, i, err)
}

func (m *instruments) gauge(name, unit, description string) metric.Float64Observable {
	i, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	return add(m, i, err)
}

// process creates the instruments for the statistics that are kept once for the whole program, and
// returns the callback that observes their values.
func (m *instruments) process() metric.Callback {
	drains := m.counter("swansong.drain.count", "{drain}", "Drains by graceful.Run that have ended, by outcome.")
	late := m.counter("swansong.guard.late", "{guard}", "Guards released after Force, or after the drain was abandoned.")
	abandoned := m.counter("swansong.guard.abandoned", "{guard}", "Guards still held when a drain was abandoned.")
	extensions := m.counter("swansong.drain.extensions", "{extension}", "Extensions of a drain that were granted.")
	longest := m.gauge("swansong.drain.longest", "s", "How long the longest drain took.")
	httpDrains := m.counter("swansong.http.drain.count", "{drain}", "Drains by httpdrain.Serve that have ended, by outcome.")
	cut := m.counter("swansong.http.cut", "{request}", "Requests and hijacked connections cut short by Force.")
	silent := m.counter("swansong.http.silent", "{connection}", "Connections closed by a drain in the middle of a request header.")
	refused := m.counter("swansong.http.refused", "{request}", "Requests answered with 503 by a draining server.")
	byOutcome := func(o metric.Observer, count metric.Int64Observable, outcomes map[string]uint64) {
		for outcome, n := range outcomes {
			o.ObserveInt64(count, int64(n), metric.WithAttributes(attribute.String("swansong.outcome", outcome)))
		}
	}
	return func(_ context.Context, o metric.Observer) error {
		s, h := graceful.ReadStats(), httpdrain.ReadStats()
		byOutcome(o, drains, map[string]uint64{"clean": s.Clean, "forced": s.Forced, "abandoned": s.Abandoned})
		byOutcome(o, httpDrains, map[string]uint64{"clean": h.Clean, "cut_short": h.CutShort})
		o.ObserveInt64(cut, int64(h.Cut))
		o.ObserveInt64(silent, int64(h.Silent))
		o.ObserveInt64(refused, int64(h.Refused))
		o.ObserveInt64(late, int64(s.Late))
		o.ObserveInt64(abandoned, int64(s.StillHeld))
		o.ObserveInt64(extensions, int64(s.Extensions))
		o.ObserveFloat64(longest, s.LongestDrain.Seconds())
		return nil
	}
}
