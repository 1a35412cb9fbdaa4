package oteldrain

import (
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// An Option configures [Observe].
type Option interface{ applyTo(*settings) error }

type option func(*settings) error

func (f option) applyTo(l *settings) error { return f(l) }

type settings struct {
	top, depth     int
	withoutProcess bool
	attributes     []attribute.KeyValue
}

// Attributes adds attributes to the measurements of a scope, to distinguish several scopes of a
// program. Without different attributes, two scopes report the same series. OpenTelemetry returns
// no error for that, and which value is exported depends on the SDK.
func Attributes(kv ...attribute.KeyValue) Option {
	return option(func(l *settings) error {
		for _, a := range kv {
			if !a.Valid() {
				return fmt.Errorf("Attributes: %q has no key or no value", a.Key)
			}
		}
		l.attributes = append(l.attributes, kv...)
		return nil
	})
}

// measurement returns the attributes of a measurement of the scope: kv and the attributes of the
// option [Attributes].
func (l *settings) measurement(kv attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(slices.Clone(l.attributes), kv)...)
}

// WithoutProcess omits the metrics that count for the whole program.
func WithoutProcess() Option {
	return option(func(l *settings) error {
		l.withoutProcess = true
		return nil
	})
}

// Top limits the series to the n scope paths with the most guards, and "(other)" for the sum of the
// rest. The default is 20. With 0, there is only the sum.
func Top(n int) Option {
	return option(func(l *settings) error {
		if n < 0 {
			return fmt.Errorf("Top(%d): must not be negative", n)
		}
		l.top = n
		return nil
	})
}

// Depth shortens scope paths to their first n segments, for example "http/conn-42" to "http". [Top]
// limits the series of one collection. If scopes are created and completed all the time, only Depth
// limits the number of series over a day. A name may contain slashes, as the methods of package
// grpcdrain do, and each of them separates two segments.
func Depth(n int) Option {
	return option(func(l *settings) error {
		if n < 1 {
			return fmt.Errorf("Depth(%d): must be at least 1", n)
		}
		l.depth = n
		return nil
	})
}
