//go:build unix

package metrics_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// known returns the labels of each metric, with their possible values. An empty value means that
// any value is possible.
func known(t *testing.T) map[string]map[string][]string {
	t.Helper()
	m := launch(t, runners("web", 1))
	families, err := registry(t, m).Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string][]string{}
	for _, f := range families {
		names := []string{f.GetName()}
		labels := map[string][]string{"job": nil, "instance": nil}
		if f.GetType().String() == "HISTOGRAM" {
			names = []string{f.GetName() + "_bucket", f.GetName() + "_sum", f.GetName() + "_count"}
			labels["le"] = nil
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
			}
		}
		for _, n := range names {
			all[n] = labels
		}
	}
	all["process_resident_memory_bytes"] = map[string][]string{"job": nil, "instance": nil}
	return all
}

var (
	quoted    = regexp.MustCompile(`"[^"]*"`)
	selector  = regexp.MustCompile(`([a-z_]+[a-z])(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`^([a-z]+)(=|=~|!=|!~)"([^"]*)"$`)
	grouping  = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	functions = strings.Fields("sum max min count rate increase histogram_quantile absent vector or and by on label_values")
)

// check reports metrics, labels and values in a query that do not exist, and records the metrics
// that it uses in usedMetrics.
func check(t *testing.T, where, query string, all map[string]map[string][]string, usedMetrics map[string]bool) {
	t.Helper()
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		for name := range strings.SplitSeq(g[1], ", ") {
			if !slices.ContainsFunc(mapValues(all), func(labels map[string][]string) bool { _, ok := labels[name]; return ok }) {
				t.Errorf("%s: no metric has the label %q", where, name)
			}
		}
	}
	rest := grouping.ReplaceAllString(strings.ReplaceAll(query, "$__rate_interval", ""), "")
	rest, _, _ = strings.Cut(rest, ", instance)") // removes the second argument of the function label_values of Grafana
	found := 0
	for _, m := range selector.FindAllStringSubmatch(rest, -1) {
		name, matchers := m[1], m[2]
		if slices.Contains(functions, name) {
			continue
		}
		labels, ok := all[name]
		if !ok {
			if strings.Contains(name, "_") {
				t.Errorf("%s: unknown metric %s", where, name)
			}
			continue
		}
		found++
		usedMetrics[name] = true
		if matchers == "" {
			continue
		}
		for one := range strings.SplitSeq(matchers, ", ") {
			p := matcher.FindStringSubmatch(one)
			if p == nil {
				t.Errorf("%s: %s: %s is not a matcher", where, name, one)
				continue
			}
			values, ok := labels[p[1]]
			if !ok {
				t.Errorf("%s: %s has no label %s", where, name, p[1])
			}
			for v := range strings.SplitSeq(p[3], "|") {
				if !strings.HasPrefix(v, "$") && !slices.Contains(values, v) {
					t.Errorf("%s: %s never has %s=%q, only %q", where, name, p[1], v, slices.Compact(slices.Sorted(slices.Values(values))))
				}
			}
		}
	}
	if found == 0 {
		t.Errorf("%s: no metric in %q", where, query)
	}
	for _, pair := range []string{"()", "[]", "{}"} {
		if bare := quoted.ReplaceAllString(query, ""); strings.Count(bare, pair[:1]) != strings.Count(bare, pair[1:]) {
			t.Errorf("%s: %s do not match in %s", where, pair, query)
		}
	}
}

func mapValues(m map[string]map[string][]string) (all []map[string][]string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// The dashboard and the rules use only metrics that exist, and the dashboard shows every metric.
func TestQueries_UseExistingMetrics(t *testing.T) {
	all, used := known(t), map[string]bool{}

	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	unmarshal(t, "dashboard.json", json.Unmarshal, &board)
	queries := 0
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			queries++
			check(t, "panel "+p.Title, target.Expr, all, used)
		}
	}
	for name := range all {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if !used[name] && !used[base+"_bucket"] && !used[base+"_count"] {
			t.Errorf("no panel shows %s", name)
		}
	}
	for _, v := range board.Templating.List {
		if v.Type == "query" {
			check(t, "variable "+v.Name, v.Definition, all, used)
		}
	}
	for _, r := range rules(t) {
		queries++
		check(t, "alert "+r.Alert, r.Expr, all, used)
	}
	if queries < 30 {
		t.Errorf("found only %d queries", queries)
	}
}

type rule struct {
	Alert, Expr         string
	For                 string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	unmarshal(t, "alerts.yaml", func(text []byte, v any) error { return yaml.Load(text, v, yaml.WithKnownFields()) }, &file)
	if len(file.Groups) != 1 {
		t.Fatalf("%d groups of rules", len(file.Groups))
	}
	return file.Groups[0].Rules
}

func unmarshal(t *testing.T, name string, f func([]byte, any) error, v any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f(text, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// Each alert links to a heading of the runbook, and has a severity.
func TestAlerts_LinkToRunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/launcher-runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(text), -1) {
		headings[strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")] = true
	}
	for _, r := range rules(t) {
		_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "docs/reference/launcher-runbook.md#")
		if !headings[anchor] {
			t.Errorf("%s: the runbook has no heading %q", r.Alert, anchor)
		}
		if !strings.Contains(string(text), "`"+r.Alert+"`") {
			t.Errorf("the runbook does not mention %s", r.Alert)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" || r.Annotations["summary"] == "" {
			t.Errorf("%s: severity %q, summary %q", r.Alert, s, r.Annotations["summary"])
		}
	}
	all := known(t)
	for _, m := range regexp.MustCompile("`(swansong_launcher_[a-z_]+)").FindAllStringSubmatch(string(text), -1) {
		if all[m[1]] == nil && all[m[1]+"_count"] == nil {
			t.Errorf("the runbook mentions %s, which does not exist", m[1])
		}
	}
}
