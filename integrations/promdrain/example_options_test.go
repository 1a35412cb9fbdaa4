package promdrain_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/promdrain"
)

// guards prints the series of held guards.
func guards(c prometheus.Collector) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "swansong_guards" {
			for _, m := range f.GetMetric() {
				fmt.Println(m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
			}
		}
	}
}

// app returns a scope with two connections, which hold two guards and one guard.
func app() *ctxshutdown.Swansong {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	for i, n := range []int{2, 1} {
		conn, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName(fmt.Sprintf("conn-%d", i)))
		for range n {
			conn.Guard()
		}
	}
	return s
}

func ExampleNewScopeCollector() {
	c, err := promdrain.NewScopeCollector(app())
	if err != nil {
		fmt.Println(err)
		return
	}
	guards(c)
	// Output:
	// (other) 0
	// app/conn-0 2
	// app/conn-1 1
}

// With Depth(1), the scopes of all connections count towards the series of their parent, app.
// Without it, each connection would have a series of its own, which Prometheus keeps.
func ExampleDepth() {
	c, err := promdrain.NewScopeCollector(app(), promdrain.Depth(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	guards(c)
	// Output:
	// (other) 0
	// app 3
}

func ExampleTop() {
	c, err := promdrain.NewScopeCollector(app(), promdrain.Top(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	guards(c)
	// Output:
	// (other) 1
	// app/conn-0 2
}

// The counters of the whole program need no scope.
func ExampleNewProcessCollector() {
	reg := prometheus.NewRegistry()
	fmt.Println(reg.Register(promdrain.NewProcessCollector()))
	// Output:
	// <nil>
}
