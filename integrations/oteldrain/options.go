package oteldrain

import (
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
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
