package dashboard_test

import (
	"os"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v4"
)

// parse parses a query as Prometheus does. It replaces Grafana's variable for the rate interval by
// a duration.
func parse(query string) error {
	_, err := parser.ParseExpr(strings.ReplaceAll(query, "$__rate_interval", "5m"))
	return err
}

// Prometheus must be able to parse each query of the dashboard, of the variables of the dashboard,
// and of the alerts. The tests of package metrics check that the metrics in these queries exist.
func TestQueries_AreParsedByPrometheus(t *testing.T) {
	d, err := strict(read(t))
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, p := range panels(t, d) {
		for _, target := range p.Targets {
			q := target.(*prometheus.Dataquery)
			queries["panel "+*p.Title+" "+*q.RefId] = q.Expr
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			inner, _, _ := strings.Cut(strings.TrimPrefix(*v.Definition, "label_values("), ", "+v.Name+")")
			queries["variable "+v.Name] = inner
		}
	}
	text, err := os.ReadFile("../../../launcher/metrics/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Load(text, &alerts); err != nil {
		t.Fatal(err)
	}
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			queries["alert "+r.Alert] = r.Expr
		}
	}
	if len(queries) < 45 {
		t.Errorf("found only %d queries", len(queries))
	}
	for where, query := range queries {
		if err := parse(query); err != nil {
			t.Errorf("%s: %v, in\n\t%s", where, err, query)
		}
	}
	if parse("sum by group (x)") == nil {
		t.Error("Prometheus accepts a text that is not a query")
	}
}
