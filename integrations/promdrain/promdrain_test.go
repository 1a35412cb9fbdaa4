package promdrain_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/internal/teststats"
	"github.com/swansong-go/swansong/integrations/promdrain"
	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Unsetenv("CTXSHUTDOWN_TRACE")
	goleak.VerifyTestMain(m)
}

// scrape gathers the metrics as Prometheus does, and returns the values by name and label.
func scrape(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	testkit.Equal(t, "HTTP status", resp.StatusCode, http.StatusOK)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			values[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

func register(t *testing.T, s *ctxshutdown.Swansong, opts ...promdrain.Option) *prometheus.Registry {
	t.Helper()
	c, err := promdrain.NewScopeCollector(s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	return reg
}

// hold acquires n guards of a new child of s.
func hold(t *testing.T, s *ctxshutdown.Swansong, name string, n int) {
	child, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName(name))
	t.Cleanup(cancel)
	for range n {
		t.Cleanup(child.Guard().Release)
	}
}

func TestScopeCollector_ReportsGuards(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
	hold(t, s, "http", 3)
	hold(t, s, "jobs", 2)
	hold(t, s, "mail", 1)
	hold(t, s, "cron", 1)
	g := s.Guard()
	reg := register(t, s, promdrain.Top(2))
	want := map[string]float64{
		"swansong_guards app/http": 3, "swansong_guards app/jobs": 2, "swansong_guards (other)": 3,
		"swansong_scope_state running": 1, "swansong_scope_state shutting_down": 0, "swansong_scope_state complete": 0,
	}
	testkit.Equal(t, "running", scrape(t, reg), want)
	s.Shutdown()
	g.Release()
	want["swansong_guards (other)"] = 2
	want["swansong_scope_state running"], want["swansong_scope_state shutting_down"] = 0, 1
	testkit.Equal(t, "shutting down", scrape(t, reg), want)
}

func TestScopeCollector_ReportsCompleteScope(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	s.Shutdown()
	testkit.Equal(t, "complete", scrape(t, register(t, s)), map[string]float64{
		"swansong_guards (other)":      0,
		"swansong_scope_state running": 0, "swansong_scope_state shutting_down": 0, "swansong_scope_state complete": 1,
	})
}

func TestScopeCollector_SumsSmallScopesIfThereAreTooManySeries(t *testing.T) {
	guardsOf := func(values map[string]float64) map[string]float64 {
		for name := range values {
			if len(name) > 20 && name[:20] == "swansong_scope_state" {
				delete(values, name)
			}
		}
		return values
	}
	s := ctxshutdown.New(t.Context())
	for i := range 100 {
		hold(t, s, "http/conn-"+strconv.Itoa(i), 1)
	}
	hold(t, s, "", 5)
	hold(t, s, "(other)", 7) // a scope named "(other)" must not make a duplicate series
	hold(t, s, "bad \xff\n\"name\"", 2)

	values := guardsOf(scrape(t, register(t, s)))
	testkit.Equal(t, "series by default", len(values), 21)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	testkit.Equal(t, "sum of all series", sum, 114.0)
	testkit.Equal(t, "unnamed", values["swansong_guards (unnamed)"], 5.0)

	testkit.Equal(t, "Depth", guardsOf(scrape(t, register(t, s, promdrain.Depth(1), nil))), map[string]float64{
		"swansong_guards http": 100, "swansong_guards (unnamed)": 5, "swansong_guards (other)": 7,
		`swansong_guards bad \xff\n\"name\"`: 2,
	})
	testkit.Equal(t, "only the sum", guardsOf(scrape(t, register(t, s, promdrain.Top(0)))), map[string]float64{"swansong_guards (other)": 114})
}

func TestScopeCollector_ReportsOldestGuard(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
	hold(t, s, "http", 2)
	values := scrape(t, register(t, s))
	age, ok := values["swansong_guard_oldest_age_seconds app/http"]
	if !ok || age <= 0 || age > 60 {
		t.Errorf("age of the oldest guard: %v, %v", age, ok)
	}
	testkit.Equal(t, "guards of two sites of one path", values["swansong_guards app/http"], 2.0)
	if _, ok := values["swansong_guard_oldest_age_seconds (other)"]; ok {
		t.Error("there is an age without guards")
	}
}

func TestProcessCollector_ReportsPhase(t *testing.T) {
	s, h := teststats.Graceful(t), teststats.HTTPDrain(t)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(promdrain.NewProcessCollector())
	testkit.Equal(t, "process", scrape(t, reg), map[string]float64{
		"swansong_drains_total clean":     float64(s.Clean),
		"swansong_drains_total forced":    float64(s.Forced),
		"swansong_drains_total abandoned": float64(s.Abandoned),
		"swansong_guards_late_total":      float64(s.Late),
		"swansong_guards_abandoned_total": float64(s.StillHeld),
		"swansong_drain_extensions_total": float64(s.Extensions),
		"swansong_drain_longest_seconds":  s.LongestDrain.Seconds(),

		"swansong_http_drains_total clean":     float64(h.Clean),
		"swansong_http_drains_total cut_short": float64(h.CutShort),
		"swansong_http_cut_total":              float64(h.Cut),
		"swansong_http_silent_total":           float64(h.Silent),
		"swansong_http_refused_total":          float64(h.Refused),
	})
}

func TestCollectors_PassLint(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithTrace())
	hold(t, s, "http", 1)
	reg := register(t, s)
	reg.MustRegister(promdrain.NewProcessCollector())
	problems, err := testutil.GatherAndLint(reg)
	testkit.Equal(t, "error", err, nil)
	if len(problems) > 0 {
		t.Errorf("promlint: %+v", problems)
	}
	n, err := testutil.GatherAndCount(reg)
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "series", n, 1+1+1+3+7+5)
}

func TestCollectors_RejectInvalidArguments(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	bad := func(want string, s *ctxshutdown.Swansong, opts ...promdrain.Option) {
		t.Helper()
		if _, err := promdrain.NewScopeCollector(s, opts...); err == nil || err.Error() != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	bad("promdrain: NewScopeCollector: nil scope; create one with ctxshutdown.New", nil)
	bad("promdrain: Top(-1): must not be negative", s, promdrain.Top(-1))
	bad("promdrain: Depth(0): must be at least 1", s, promdrain.Depth(0))

	reg := register(t, s)
	c, err := promdrain.NewScopeCollector(ctxshutdown.New(t.Context()))
	testkit.Equal(t, "error", err, nil)
	var dup prometheus.AlreadyRegisteredError
	if err := reg.Register(c); !errors.As(err, &dup) {
		t.Errorf("a second root in one registry: %v", err)
	}
	testkit.Equal(t, "told apart by a label", prometheus.WrapRegistererWith(prometheus.Labels{"root": "b"}, prometheus.NewRegistry()).Register(c), nil)
	reg.MustRegister(promdrain.NewProcessCollector())
	if err := reg.Register(promdrain.NewProcessCollector()); !errors.As(err, &dup) {
		t.Errorf("a second process collector: %v", err)
	}
}
