package promdrain_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/promdrain"
)

func Example() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	defer app.Shutdown()

	c, err := promdrain.NewScopeCollector(app, promdrain.Depth(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(c, promdrain.NewProcessCollector())

	g := app.Guard()
	defer g.Release()
	families, err := reg.Gather() // the handler of promhttp calls Gather for each scrape
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
	// Output:
	// (other) 0
	// app 1
}
