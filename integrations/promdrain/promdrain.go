package promdrain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

const (
	// defaultTop is how many scope paths get a series of their own.
	defaultTop = 20

	// In parentheses, as the reports have it: scopes are seldom named so.
	other   = "(other)"
	unnamed = "(unnamed)"
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
	c := &scopeCollector{scope: s, top: defaultTop}
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
	for _, g := range c.groups() {
		ch <- prometheus.MustNewConstMetric(guards, prometheus.GaugeValue, float64(g.count), g.path)
		if g.traced {
			ch <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, g.oldest.Seconds(), g.path)
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

// A group is a series.
type group struct {
	path   string
	count  int
	traced bool
	oldest time.Duration
}

func (g group) with(o group) group {
	return group{g.path, g.count + o.count, g.traced || o.traced, max(g.oldest, o.oldest)}
}

// groups returns the paths with the most guards, and the sum of the others, which is always there: a series that comes
// and goes cannot be alerted on.
func (c *scopeCollector) groups() []group {
	byPath := map[string]group{}
	for _, e := range c.scope.GuardReport().Entries() {
		path := cut(cmp.Or(strings.ToValidUTF8(e.Path, "�"), unnamed), c.depth)
		byPath[path] = group{path: path}.with(byPath[path]).with(group{"", e.Count, e.Site != "", e.Oldest})
	}
	var list []group
	rest := group{path: other}.with(byPath[other])
	delete(byPath, other) // a scope of that name would be a duplicate
	for _, g := range byPath {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b group) int { return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.path, b.path)) })
	for len(list) > c.top {
		rest = rest.with(list[len(list)-1])
		list = list[:len(list)-1]
	}
	return append(list, rest)
}

// cut returns the first n segments of path, all of it for 0.
func cut(path string, n int) string {
	for i, r := range path {
		if r == '/' {
			if n--; n == 0 {
				return path[:i]
			}
		}
	}
	return path
}

type processCollector struct{}

var (
	drains     = prometheus.NewDesc("swansong_drains_total", "Drains that have ended, by outcome.", []string{"outcome"}, nil)
	late       = prometheus.NewDesc("swansong_guards_late_total", "Guards released after somebody had given up on them.", nil, nil)
	abandoned  = prometheus.NewDesc("swansong_guards_abandoned_total", "Guards still held when a drain was abandoned.", nil, nil)
	extensions = prometheus.NewDesc("swansong_drain_extensions_total", "Extensions of a drain that were granted.", nil, nil)
	longest    = prometheus.NewDesc("swansong_drain_longest_seconds", "How long the longest drain took.", nil, nil)
)

// NewProcessCollector returns a collector for [graceful.ReadStats], which counts for the whole program: one in a
// registry is enough, and a second is a duplicate.
func NewProcessCollector() prometheus.Collector { return processCollector{} }

func (processCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{drains, late, abandoned, extensions, longest} {
		ch <- d
	}
}

func (processCollector) Collect(ch chan<- prometheus.Metric) {
	s := graceful.ReadStats()
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
}
