package oteldrain_test

import (
	"context"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/oteldrain"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// The drain is a span with an event for each phase.
func ExampleTrace() {
	exporter := tracetest.NewInMemoryExporter() // in a program, use an OTLP exporter
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))

	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	end, err := oteldrain.Trace(app, tp)
	if err != nil {
		fmt.Println(err)
		return
	}

	// A real program does its work here, until it is stopped.
	if err := app.Shutdown().Wait(context.Background()); err != nil {
		fmt.Println(err)
	}

	end()
	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name, span.Events[0].Name)
	}
	tp.Shutdown(context.Background()) // shut the provider down last, with a context that outlives the drain
	// Output: swansong.drain soft
}
