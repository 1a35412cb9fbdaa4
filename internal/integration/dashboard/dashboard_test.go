package dashboard_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func read(t *testing.T) []byte {
	t.Helper()
	cog.NewRuntime().RegisterDataqueryVariant(prometheus.VariantConfig())
	cog.NewRuntime().RegisterPanelcfgVariant(stat.VariantConfig())
	cog.NewRuntime().RegisterPanelcfgVariant(timeseries.VariantConfig())
	text, err := os.ReadFile("../../../launcher/metrics/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// strict parses a dashboard with Grafana's own types. It returns an error if a required field is
// missing, a field is unknown, or a value has the wrong type.
func strict(text []byte) (d dashboard.Dashboard, err error) {
	if err := d.UnmarshalJSONStrict(text); err != nil {
		return d, err
	}
	return d, d.Validate()
}

// panels returns all panels of a dashboard, including the panels inside rows.
func panels(t *testing.T, d dashboard.Dashboard) (all []dashboard.Panel) {
	t.Helper()
	for _, p := range d.Panels {
		if p.Panel != nil {
			all = append(all, *p.Panel)
		}
		if p.RowPanel != nil {
			all = append(all, p.RowPanel.Panels...)
		}
	}
	if len(all) < 20 {
		t.Fatalf("found only %d panels, want at least 20", len(all))
	}
	return all
}

func TestDashboard_IsAcceptedByGrafana(t *testing.T) {
	d, err := strict(read(t))
	if err != nil {
		t.Fatal(err)
	}
	ids, at := map[uint32]string{}, map[string]string{}
	for _, p := range panels(t, d) {
		title := *p.Title
		if other, twice := ids[*p.Id]; twice {
			t.Errorf("panels %q and %q have the id %d", other, title, *p.Id)
		}
		ids[*p.Id] = title
		if _, known := map[string]bool{"stat": true, "timeseries": true}[p.Type]; !known {
			t.Errorf("panel %q has the type %s, whose options this test does not check; add a check for it", title, p.Type)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				cell := fmt.Sprint(x, ",", y)
				if other, taken := at[cell]; taken {
					t.Fatalf("panel %q overlaps panel %q", title, other)
				}
				at[cell] = title
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q is wider than the page", title)
		}
		for _, target := range p.Targets {
			if q, ok := target.(*prometheus.Dataquery); !ok || q.Expr == "" {
				t.Errorf("panel %q has a query for another data source than Prometheus: %+v", title, target)
			}
		}
	}
}

// The function strict reads the dashboard in these tests. It must reject fields that Grafana would
// drop, and values that Grafana would misunderstand.
func TestStrictParser_RejectsMistakesInDashboard(t *testing.T) {
	good := read(t)
	for what, change := range map[string][2]string{
		"an unknown field":              {`"schemaVersion"`, `"schema_version"`},
		"an unknown field of a panel":   {`"gridPos"`, `"grid_pos"`},
		"a string in place of a number": {`"h": 8`, `"h": "8"`},
		"an unknown field of a query":   {`"expr"`, `"promql"`},
		"an unknown option":             {`"reduceOptions"`, `"reduce"`},
	} {
		bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(bad, good) {
			t.Fatalf("%s: the dashboard does not contain %s, which this test replaces", what, change[0])
		}
		if _, err := strict(bad); err == nil {
			t.Errorf("strict accepts a dashboard with %s", what)
		}
	}
}

// When Grafana's types write the dashboard as JSON again, no field may be missing.
func TestDashboard_GrafanaKeepsEveryField(t *testing.T) {
	text := read(t)
	d, err := strict(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var before, after any
	if err := json.Unmarshal(text, &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &after); err != nil {
		t.Fatal(err)
	}
	if lost := missing("", before, after); len(lost) > 0 {
		t.Errorf("Grafana drops %s", cmp.Diff([]string(nil), lost))
	}
}

// missing returns the paths of all values that are in a and not in b. It does not look for values
// that are only in b.
func missing(path string, a, b any) (lost []string) {
	switch a := a.(type) {
	case map[string]any:
		if len(a) == 0 {
			return nil
		}
		other, _ := b.(map[string]any)
		for k, v := range a {
			lost = append(lost, missing(path+"."+k, v, other[k])...)
		}
	case []any:
		other, _ := b.([]any)
		for k, v := range a {
			if k >= len(other) {
				lost = append(lost, fmt.Sprintf("%s[%d]", path, k))
				continue
			}
			lost = append(lost, missing(fmt.Sprintf("%s[%d]", path, k), v, other[k])...)
		}
	default:
		if a != b {
			lost = append(lost, fmt.Sprintf("%s: %v, now %v", path, a, b))
		}
	}
	return lost
}
