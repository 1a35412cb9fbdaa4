package oteldrain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const (
	// defaultTop is how many scope paths get a series of their own.
	defaultTop = 20

	// In parentheses, as the reports have it: scopes are seldom named so.
	other   = "(other)"
	unnamed = "(unnamed)"
)

// An Option configures [Observe].
type Option interface{ applyTo(*limits) error }

type option func(*limits) error

func (f option) applyTo(l *limits) error { return f(l) }

type limits struct {
	top, depth     int
	withoutProcess bool
	attributes     []attribute.KeyValue
}

// Attributes are added to what is measured of the scope. They tell several scopes in one program apart: the API takes
// the same measurement twice without an error, and what becomes of it is up to the SDK.
func Attributes(kv ...attribute.KeyValue) Option {
	return option(func(l *limits) error {
		for _, a := range kv {
			if !a.Valid() {
				return fmt.Errorf("Attributes: %q has no key or no value", a.Key)
			}
		}
		l.attributes = append(l.attributes, kv...)
		return nil
	})
}

// on returns the option for a measurement of the scope.
func (l *limits) on(kv attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(slices.Clone(l.attributes), kv)...)
}

// WithoutProcess leaves out what is counted for the whole program.
func WithoutProcess() Option {
	return option(func(l *limits) error {
		l.withoutProcess = true
		return nil
	})
}

// Top limits the series to the n scope paths with the most guards, 20 if not given, and "(other)" for the sum of the
// rest. With 0, the sum is all there is.
func Top(n int) Option {
	return option(func(l *limits) error {
		if n < 0 {
			return fmt.Errorf("Top(%d): it cannot be negative", n)
		}
		l.top = n
		return nil
	})
}

// Depth cuts scope paths to their first n segments, as in "http" for "http/conn-42". [Top] bounds what one collection
// shows; where paths come and go, it is Depth that keeps the number of series over a day small. Names may have slashes of
// their own, such as the methods of package grpcdrain, and count as they are written.
func Depth(n int) Option {
	return option(func(l *limits) error {
		if n < 1 {
			return fmt.Errorf("Depth(%d): it has to be at least 1", n)
		}
		l.depth = n
		return nil
	})
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
func (l *limits) groups(r ctxshutdown.GuardReport) []group {
	byPath := map[string]group{}
	for _, e := range r.Entries() {
		path := cut(cmp.Or(strings.ToValidUTF8(e.Path, "�"), unnamed), l.depth)
		byPath[path] = group{path: path}.with(byPath[path]).with(group{"", e.Count, e.Site != "", e.Oldest})
	}
	var list []group
	rest := group{path: other}.with(byPath[other])
	delete(byPath, other) // a scope of that name would be a duplicate
	for _, g := range byPath {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b group) int { return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.path, b.path)) })
	for len(list) > l.top {
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
