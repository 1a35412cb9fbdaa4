package oteldrain_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/oteldrain"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// guards prints the numbers of guards that are exported for a scope with two child scopes. The
// first child holds two guards, and the second one guard.
func guards(opts ...oteldrain.Option) {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	for i, n := range []int{2, 1} {
		conn, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName(fmt.Sprintf("conn-%d", i)))
		for range n {
			defer conn.Guard().Release()
		}
	}
	reader := sdkmetric.NewManualReader() // in a program, use a PeriodicReader
	stop, err := oteldrain.Observe(s, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), opts...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		fmt.Println(err)
		return
	}
	var lines []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "swansong.guard.count" {
			for _, p := range data.DataPoints {
				lines = append(lines, fmt.Sprint(p.Attributes.Encoded(attribute.DefaultEncoder()), " ", p.Value))
			}
		}
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
}

func ExampleObserve() {
	guards()
	// Output:
	// swansong.scope=(other) 0
	// swansong.scope=app/conn-0 2
	// swansong.scope=app/conn-1 1

}

// Each connection has a child scope. With Depth(1), the guards of all child scopes are added up in
// the time series of their parent. Without it, each connection has a time series of its own, which
// stays in the database when the connection has ended.
func ExampleDepth() {
	guards(oteldrain.Depth(1))
	// Output:
	// swansong.scope=(other) 0
	// swansong.scope=app 3

}

func ExampleTop() {
	guards(oteldrain.Top(1))
	// Output:
	// swansong.scope=(other) 1
	// swansong.scope=app/conn-0 2

}

// A program with several root scopes distinguishes them by an attribute.
func ExampleAttributes() {
	guards(oteldrain.Attributes(attribute.String("tenant", "acme")), oteldrain.WithoutProcess(), oteldrain.Depth(1))
	// Output:
	// swansong.scope=(other),tenant=acme 0
	// swansong.scope=app,tenant=acme 3

}

func ExampleWithoutProcess() {
	guards(oteldrain.WithoutProcess(), oteldrain.Depth(1))
	// Output:
	// swansong.scope=(other) 0
	// swansong.scope=app 3

}
