package promdrain

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/topscopes"
)

// An Option configures [NewScopeCollector].
type Option interface{ applyTo(*scopeCollector) error }

type option func(*scopeCollector) error

func (f option) applyTo(c *scopeCollector) error { return f(c) }

// Top limits the series to the n scope paths with the most guards, 20 if not given, and "(other)" for the sum of the
// rest. With 0, the sum is all there is.
func Top(n int) Option {
	return option(func(c *scopeCollector) error {
		if n < 0 {
			return fmt.Errorf("Top(%d): it cannot be negative", n)
		}
		c.top = n
		return nil
	})
}

// Depth cuts scope paths to their first n segments, as in "http" for "http/conn-42". [Top] bounds what one scrape shows;
// where paths come and go, it is Depth that keeps the number of series over a day small. Names may have slashes of their
// own, such as the methods of package grpcdrain, and count as they are written.
func Depth(n int) Option {
	return option(func(c *scopeCollector) error {
		if n < 1 {
			return fmt.Errorf("Depth(%d): it has to be at least 1", n)
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
		"How long the oldest guard has been held, by scope path, where traced.", []string{"scope"}, nil)
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

// NewScopeCollector returns a collector for s and what is below it. It asks for a report when it is scraped and costs
// nothing in between. For several roots in one registry, tell them apart by
// [prometheus.WrapRegistererWith](prometheus.Labels{"root": "…"}, registry): registered side by side they are duplicates, and
// Register says so.
func NewScopeCollector(s *ctxshutdown.Swansong, opts ...Option) (prometheus.Collector, error) {
	if s == nil {
		return nil, errors.New("promdrain: NewScopeCollector of a nil scope")
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
	drains     = prometheus.NewDesc("swansong_drains_total", "Drains that have ended, by outcome.", []string{"outcome"}, nil)
	late       = prometheus.NewDesc("swansong_guards_late_total", "Guards released after somebody had given up on them.", nil, nil)
	abandoned  = prometheus.NewDesc("swansong_guards_abandoned_total", "Guards still held when a drain was abandoned.", nil, nil)
	extensions = prometheus.NewDesc("swansong_drain_extensions_total", "Extensions of a drain that were granted.", nil, nil)
	longest    = prometheus.NewDesc("swansong_drain_longest_seconds", "How long the longest drain took.", nil, nil)

	httpDrains  = prometheus.NewDesc("swansong_http_drains_total", "Drains of HTTP servers that have ended, by outcome.", []string{"outcome"}, nil)
	httpCut     = prometheus.NewDesc("swansong_http_cut_total", "Requests and hijacked connections that a drain has cut off.", nil, nil)
	httpSilent  = prometheus.NewDesc("swansong_http_silent_total", "Connections that a drain has closed in the middle of a header.", nil, nil)
	httpRefused = prometheus.NewDesc("swansong_http_refused_total", "Requests that were answered by 503 while a server drained.", nil, nil)
)

// NewProcessCollector returns a collector for [graceful.ReadStats] and [httpdrain.ReadStats], which count for the whole program:
// one in a registry is enough, and a second is a duplicate.
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
