package promdrain

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/integrations/internal/topscopes"
)

// An Option configures [NewScopeCollector].
type Option interface{ applyTo(*scopeCollector) error }

type option func(*scopeCollector) error

func (f option) applyTo(c *scopeCollector) error { return f(c) }

// Top limits the series to the n scope paths with the most guards, and "(other)" for the sum of the
// rest. The default is 20. With 0, there is only the sum.
func Top(n int) Option {
	return option(func(c *scopeCollector) error {
		if n < 0 {
			return fmt.Errorf("Top(%d): must not be negative", n)
		}
		c.top = n
		return nil
	})
}

// Depth shortens scope paths to their first n segments, for example "http/conn-42" to "http". [Top]
// limits the series of one scrape. If scopes are created and completed all the time, only Depth
// limits the number of series over a day. A name may contain slashes, as the methods of package
// grpcdrain do, and each of them separates two segments.
func Depth(n int) Option {
	return option(func(c *scopeCollector) error {
		if n < 1 {
			return fmt.Errorf("Depth(%d): must be at least 1", n)
		}
		c.depth = n
		return nil
	})
}

type scopeCollector struct {
	scope      *ctxshutdown.Swansong
	top, depth int
}

var (
	guards = prometheus.NewDesc("swansong_guards", "Guards held, by scope path.", []string{"scope"}, nil)
	oldest = prometheus.NewDesc("swansong_guard_oldest_age_seconds",
		"Age of the oldest guard, by scope path, if traced.", []string{"scope"}, nil)
	state = prometheus.NewDesc("swansong_scope_state", "1 for the state that the scope is in.", []string{"state"}, nil)
)

var states = []struct {
	state ctxshutdown.State
	label string
}{
	{ctxshutdown.Running, "running"},
	{ctxshutdown.ShuttingDown, "shutting_down"},
	{ctxshutdown.Complete, "complete"},
}

// NewScopeCollector returns a collector for s and all scopes below it. It costs nothing between
// scrapes. To register several root scopes in one registry, distinguish them with
// [prometheus.WrapRegistererWith](prometheus.Labels{"root": "…"}, registry). Without that, Register
// returns an error for the second one.
func NewScopeCollector(s *ctxshutdown.Swansong, opts ...Option) (prometheus.Collector, error) {
	if s == nil {
		return nil, errors.New("promdrain: NewScopeCollector: nil scope; create one with ctxshutdown.New")
	}
	c := &scopeCollector{scope: s, top: topscopes.DefaultTop}
	for _, o := range opts {
		if o == nil {
			continue
		}
		if err := o.applyTo(c); err != nil {
			return nil, fmt.Errorf("promdrain: %w", err)
		}
	}
	return c, nil
}

func (c *scopeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- guards
	ch <- oldest
	ch <- state
}

func (c *scopeCollector) Collect(ch chan<- prometheus.Metric) {
	for _, g := range topscopes.Of(c.scope.GuardReport(), c.top, c.depth) {
		ch <- prometheus.MustNewConstMetric(guards, prometheus.GaugeValue, float64(g.Count), g.Path)
		if g.Traced {
			ch <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, g.Oldest.Seconds(), g.Path)
		}
	}
	now := c.scope.State()
	for _, st := range states {
		v := 0.0
		if st.state == now {
			v = 1
		}
		ch <- prometheus.MustNewConstMetric(state, prometheus.GaugeValue, v, st.label)
	}
}

type processCollector struct{}

var (
	drains     = prometheus.NewDesc("swansong_drains_total", "Drains by graceful.Run that have ended, by outcome. Drains without it are not counted; for HTTP servers see swansong_http_drains_total.", []string{"outcome"}, nil)
	late       = prometheus.NewDesc("swansong_guards_late_total", "Guards released after Force, or after the drain was abandoned.", nil, nil)
	abandoned  = prometheus.NewDesc("swansong_guards_abandoned_total", "Guards still held when a drain was abandoned.", nil, nil)
	extensions = prometheus.NewDesc("swansong_drain_extensions_total", "Extensions of a drain that were granted.", nil, nil)
	longest    = prometheus.NewDesc("swansong_drain_longest_seconds", "How long the longest drain took.", nil, nil)

	httpDrains  = prometheus.NewDesc("swansong_http_drains_total", "Drains by httpdrain.Serve that have ended, by outcome, with or without graceful.Run.", []string{"outcome"}, nil)
	httpCut     = prometheus.NewDesc("swansong_http_cut_total", "Requests and hijacked connections cut short by Force.", nil, nil)
	httpSilent  = prometheus.NewDesc("swansong_http_silent_total", "Connections closed by a drain in the middle of a request header.", nil, nil)
	httpRefused = prometheus.NewDesc("swansong_http_refused_total", "Requests answered with 503 by a draining server.", nil, nil)
)

// NewProcessCollector returns a collector for [graceful.ReadStats] and [httpdrain.ReadStats]. Both
// count for the whole program, so register only one such collector; for a second one, Register
// returns an error.
func NewProcessCollector() prometheus.Collector { return processCollector{} }

func (processCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{drains, late, abandoned, extensions, longest, httpDrains, httpCut, httpSilent, httpRefused} {
		ch <- d
	}
}

func (processCollector) Collect(ch chan<- prometheus.Metric) {
	s, h := graceful.ReadStats(), httpdrain.ReadStats()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(drains, s.Clean, "clean")
	count(drains, s.Forced, "forced")
	count(drains, s.Abandoned, "abandoned")
	count(late, s.Late)
	count(abandoned, s.StillHeld)
	count(extensions, s.Extensions)
	ch <- prometheus.MustNewConstMetric(longest, prometheus.GaugeValue, s.LongestDrain.Seconds())
	count(httpDrains, h.Clean, "clean")
	count(httpDrains, h.CutShort, "cut_short")
	count(httpCut, h.Cut)
	count(httpSilent, h.Silent)
	count(httpRefused, h.Refused)
}
