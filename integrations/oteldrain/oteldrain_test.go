package oteldrain_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/integrations/internal/teststats"
	"github.com/swansong-go/swansong/integrations/oteldrain"
	"github.com/swansong-go/swansong/internal/testkit"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Unsetenv("CTXSHUTDOWN_TRACE")
	goleak.VerifyTestMain(m)
}

// collect returns the values that an exporter receives, by name and attribute.
func collect(t *testing.T, r *sdkmetric.ManualReader) (values map[string]float64, units map[string]string) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	values, units = map[string]float64{}, map[string]string{}
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			units[m.Name] = m.Unit
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				add(values, m.Name, data.DataPoints)
			case metricdata.Gauge[float64]:
				add(values, m.Name, data.DataPoints)
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return values, units
}

func add[N int64 | float64](values map[string]float64, name string, points []metricdata.DataPoint[N]) {
	for _, p := range points {
		key := name
		for _, kv := range p.Attributes.ToSlice() {
			key += " " + kv.Value.String()
		}
		values[key] = float64(p.Value)
	}
}

func observe(t *testing.T, s *ctxshutdown.Swansong, opts ...oteldrain.Option) (*sdkmetric.ManualReader, func() error) {
	t.Helper()
	r := sdkmetric.NewManualReader()
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r))
	t.Cleanup(func() { mp.Shutdown(context.Background()) })
	stop, err := oteldrain.Observe(s, mp, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r, stop
}

// hold acquires n guards of a new child of s.
func hold(t *testing.T, s *ctxshutdown.Swansong, name string, n int) {
	child, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName(name))
	t.Cleanup(cancel)
	for range n {
		t.Cleanup(child.Guard().Release)
	}
}

func TestObserve_ReportsGuards(t *testing.T) {
	p, h := teststats.Graceful(t), teststats.HTTPDrain(t)
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
	hold(t, s, "http", 3)
	hold(t, s, "jobs", 2)
	hold(t, s, "mail", 1)
	g := s.Guard()
	reader, stop := observe(t, s, oteldrain.Top(2), nil)
	want := map[string]float64{
		"swansong.guard.count app/http": 3, "swansong.guard.count app/jobs": 2, "swansong.guard.count (other)": 2,
		"swansong.scope.state running": 1, "swansong.scope.state shutting_down": 0, "swansong.scope.state complete": 0,
		"swansong.drain.count clean":     float64(p.Clean),
		"swansong.drain.count forced":    float64(p.Forced),
		"swansong.drain.count abandoned": float64(p.Abandoned),
		"swansong.guard.late":            float64(p.Late),
		"swansong.guard.abandoned":       float64(p.StillHeld),
		"swansong.drain.extensions":      float64(p.Extensions),
		"swansong.drain.longest":         p.LongestDrain.Seconds(),

		"swansong.http.drain.count clean":     float64(h.Clean),
		"swansong.http.drain.count cut_short": float64(h.CutShort),
		"swansong.http.cut":                   float64(h.Cut),
		"swansong.http.silent":                float64(h.Silent),
		"swansong.http.refused":               float64(h.Refused),
	}
	got, units := collect(t, reader)
	testkit.Equal(t, "running", got, want)
	testkit.Equal(t, "units", units, map[string]string{
		"swansong.guard.count": "{guard}", "swansong.scope.state": "1",
		"swansong.drain.count": "{drain}", "swansong.guard.late": "{guard}", "swansong.guard.abandoned": "{guard}",
		"swansong.drain.extensions": "{extension}", "swansong.drain.longest": "s",
		"swansong.http.drain.count": "{drain}", "swansong.http.cut": "{request}", "swansong.http.silent": "{connection}",
		"swansong.http.refused": "{request}",
	})
	s.Shutdown()
	g.Release()
	want["swansong.guard.count (other)"] = 1
	want["swansong.scope.state running"], want["swansong.scope.state shutting_down"] = 0, 1
	got, _ = collect(t, reader)
	testkit.Equal(t, "shutting down", got, want)

	testkit.Equal(t, "stop", stop(), nil)
	testkit.Equal(t, "stop again", stop(), nil)
	got, _ = collect(t, reader)
	testkit.Equal(t, "after stop", got, map[string]float64{})
}

func TestObserve_SumsSmallScopesIfThereAreTooManySeries(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	for i := range 100 {
		hold(t, s, "http/conn-"+strconv.Itoa(i), 1)
	}
	hold(t, s, "", 5)
	hold(t, s, "(other)", 7)
	reader, _ := observe(t, s, oteldrain.WithoutProcess())
	got, _ := collect(t, reader)
	testkit.Equal(t, "series by default", len(got), 21+3)
	sum := 0.0
	for _, v := range got {
		sum += v
	}
	testkit.Equal(t, "nothing is missing from the sum", sum, 100+5+7+1.0)

	reader, _ = observe(t, s, oteldrain.WithoutProcess(), oteldrain.Depth(1))
	got, _ = collect(t, reader)
	testkit.Equal(t, "Depth", got, map[string]float64{
		"swansong.guard.count http": 100, "swansong.guard.count (unnamed)": 5, "swansong.guard.count (other)": 7,
		"swansong.scope.state running": 1, "swansong.scope.state shutting_down": 0, "swansong.scope.state complete": 0,
	})
}

func TestObserve_ReportsSeveralScopes(t *testing.T) {
	r := sdkmetric.NewManualReader()
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r))
	t.Cleanup(func() { mp.Shutdown(context.Background()) })
	for name, guards := range map[string]int{"a": 1, "b": 2} {
		s := ctxshutdown.New(t.Context())
		hold(t, s, "", guards)
		_, err := oteldrain.Observe(s, mp, oteldrain.Top(0), oteldrain.WithoutProcess(), oteldrain.Attributes(attribute.String("root", name)))
		testkit.Equal(t, "error", err, nil)
	}
	got, _ := collect(t, r)
	testkit.Equal(t, "a", got["swansong.guard.count a (other)"], 1.0)
	testkit.Equal(t, "b", got["swansong.guard.count b (other)"], 2.0)
	testkit.Equal(t, "state of b", got["swansong.scope.state b running"], 1.0)
}

func TestObserve_ReportsOldestGuard(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
	hold(t, s, "http", 2)
	reader, _ := observe(t, s)
	got, units := collect(t, reader)
	if age := got["swansong.guard.oldest_age app/http"]; age <= 0 || age > 60 {
		t.Errorf("age of the oldest guard: %v", age)
	}
	testkit.Equal(t, "unit", units["swansong.guard.oldest_age"], "s")
}

// An event is an event of a span, reduced to the attributes that the tests check.
type event struct {
	Name, Cause string
	Guards      int64
	Blockers    []string
	Granted     float64 // granted time in seconds
}

type span struct {
	Name, Outcome, Error string
	Events               []event
}

// spansOf returns the exported spans.
func spansOf(t *testing.T, exp *tracetest.InMemoryExporter) (spans []span) {
	t.Helper()
	for _, s := range exp.GetSpans() {
		got := span{Name: s.Name}
		for _, kv := range s.Attributes {
			if kv.Key == "swansong.outcome" {
				got.Outcome = kv.Value.AsString()
			}
		}
		if s.Status.Code == codes.Error {
			got.Error = s.Status.Description
		}
		for _, e := range s.Events {
			ev := event{Name: e.Name}
			for _, kv := range e.Attributes {
				switch kv.Key {
				case "swansong.cause":
					ev.Cause = kv.Value.AsString()
				case "swansong.granted_seconds":
					ev.Granted = kv.Value.AsFloat64()
				case "swansong.guards":
					ev.Guards = kv.Value.AsInt64()
				case "swansong.blockers":
					ev.Blockers = append(ev.Blockers, kv.Value.AsStringSlice()...)
				}
			}
			got.Events = append(got.Events, ev)
		}
		spans = append(spans, got)
	}
	return spans
}

func TestTrace_RecordsDrainAsSpan(t *testing.T) {
	errSignal, errLate := errors.New("SIGTERM"), errors.New("10s are over")
	soft := event{"soft", "SIGTERM", 1, []string{"app/http ×1"}, 0}
	hard := event{"hard", "10s are over", 1, []string{"app/http ×1"}, 0}
	for _, c := range []struct {
		name  string
		drain func(s *ctxshutdown.Swansong, g *ctxshutdown.Guard)
		want  []span
	}{
		{"no drain", func(_ *ctxshutdown.Swansong, g *ctxshutdown.Guard) { g.Release() }, nil},
		{"clean", func(s *ctxshutdown.Swansong, g *ctxshutdown.Guard) {
			s.ShutdownCause(errSignal)
			synctest.Wait()
			g.Release()
		}, []span{{"swansong.drain", "clean", "", []event{soft}}}},
		{"forced", func(s *ctxshutdown.Swansong, g *ctxshutdown.Guard) {
			s.ShutdownCause(errSignal)
			synctest.Wait()
			s.Force(errLate)
			synctest.Wait()
			g.Release()
		}, []span{{"swansong.drain", "forced", "", []event{soft, hard}}}},
		{"forced at once", func(s *ctxshutdown.Swansong, g *ctxshutdown.Guard) {
			s.Force(errLate)
			synctest.Wait()
			g.Release()
		}, []span{{"swansong.drain", "forced", "", []event{{"soft", "10s are over", 1, []string{"app/http ×1"}, 0}, hard}}}},
		{"abandoned", func(s *ctxshutdown.Swansong, _ *ctxshutdown.Guard) {
			s.ShutdownCause(errSignal)
			synctest.Wait()
			s.Force(errLate)
		}, []span{{"swansong.drain", "abandoned", "abandoned with 1 guard: app/http ×1", []event{soft, hard}}}},
		{"abandoned before the force", func(s *ctxshutdown.Swansong, _ *ctxshutdown.Guard) { s.ShutdownCause(errSignal) },
			[]span{{"swansong.drain", "abandoned", "abandoned with 1 guard: app/http ×1", []event{soft}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				exp := tracetest.NewInMemoryExporter()
				tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exp))
				s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
				child, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("http"))
				defer cancel()
				g := child.Guard()
				defer g.Release()
				end, err := oteldrain.Trace(s, tp)
				testkit.Equal(t, "error", err, nil)
				c.drain(s, g)
				end()
				end()
				testkit.Equal(t, "spans", spansOf(t, exp), c.want)
				s.Shutdown()
			})
		})
	}
}

// In a process, the span begins with the lame duck phase and has an event for each extension.
func TestTrace_SpanBeginsWithLameDuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errSignal := errors.New("SIGTERM")
		exp := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exp))
		ctx, sigterm := context.WithCancelCause(t.Context())
		var end func()
		err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) (err error) {
			end, err = oteldrain.Trace(s, tp)
			testkit.Equal(t, "error", err, nil)
			sigterm(errSignal)
			<-s.Done() // wait for the end of the lame duck phase
			synctest.Wait()
			graceful.Extend(s, 15*time.Second, "one more batch")
			synctest.Wait()
			graceful.Extend(s, 17*time.Second, "and the last")
			synctest.Wait()
			return nil
		}, graceful.WithSignals(), graceful.WithLameDuck(time.Second), graceful.WithScope(ctxshutdown.WithName("app")))
		testkit.Equal(t, "Run", err, nil)
		end()
		held := []string{"app/main ×1"}
		testkit.Equal(t, "spans", spansOf(t, exp), []span{{"swansong.drain", "clean", "", []event{
			{"lame_duck", "SIGTERM", 1, held, 0},
			{"soft", "SIGTERM", 1, held, 0},
			{"extended", "SIGTERM", 1, held, 5},
			{"extended", "SIGTERM", 1, held, 2},
		}}})
	})
}

// The span of the drain is a child of the span of the program, and an event in it lists at most ten
// blockers.
func TestTrace_SpanHasParentAndListsAtMostTenBlockers(t *testing.T) {
	exp := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exp))
	ctx, program := tp.Tracer("test").Start(t.Context(), "program")
	s := ctxshutdown.New(ctx, ctxshutdown.WithTrace())
	for i := range 30 {
		hold(t, s, fmt.Sprint(i), 1)
	}
	end, err := oteldrain.Trace(s, tp)
	testkit.Equal(t, "error", err, nil)
	s.Shutdown()
	end()
	spans := exp.GetSpans()
	testkit.Equal(t, "spans", len(spans), 1)
	testkit.Equal(t, "parent", spans[0].Parent.SpanID(), program.SpanContext().SpanID())
	events := spansOf(t, exp)[0].Events
	testkit.Equal(t, "blockers listed", len(events[0].Blockers), 10)
	testkit.Equal(t, "guards", events[0].Guards, int64(30))
}

func TestObserve_RejectsInvalidArguments(t *testing.T) {
	s, mp, tp := ctxshutdown.New(t.Context()), sdkmetric.NewMeterProvider(), sdktrace.NewTracerProvider()
	observe := func(s *ctxshutdown.Swansong, mp metric.MeterProvider, opts ...oteldrain.Option) error {
		_, err := oteldrain.Observe(s, mp, opts...)
		return err
	}
	trace := func(s *ctxshutdown.Swansong, tp trace.TracerProvider) error {
		_, err := oteldrain.Trace(s, tp)
		return err
	}
	for want, err := range map[string]error{
		"oteldrain: Observe: nil scope; create one with ctxshutdown.New":                               observe(nil, mp),
		"oteldrain: Observe: nil metric.MeterProvider; use otel.GetMeterProvider() for the global one": observe(s, nil),
		"oteldrain: Top(-1): must not be negative":                                                     observe(s, mp, oteldrain.Top(-1)),
		"oteldrain: Depth(0): must be at least 1":                                                      observe(s, mp, oteldrain.Depth(0)),
		`oteldrain: Attributes: "" has no key or no value`:                                             observe(s, mp, oteldrain.Attributes(attribute.KeyValue{})),
		"oteldrain: Trace: nil scope; create one with ctxshutdown.New":                                 trace(nil, tp),
		"oteldrain: Trace: nil trace.TracerProvider; use otel.GetTracerProvider() for the global one":  trace(s, nil),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}
