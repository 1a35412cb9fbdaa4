package dashboardtest_test

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
	text, err := os.ReadFile("../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// strict reads a dashboard as Grafana has its fields: all that have to be there are, no other is, and each has a value that it
// can have.
func strict(text []byte) (d dashboard.Dashboard, err error) {
	if err := d.UnmarshalJSONStrict(text); err != nil {
		return d, err
	}
	return d, d.Validate()
}

// panels returns the panels of a dashboard, also those in rows.
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
		t.Fatalf("only %d panels are found", len(all))
	}
	return all
}

func TestDashboardIsGrafanas(t *testing.T) {
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
			t.Errorf("panel %q is a %s, whose options nobody has checked", title, p.Type)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				cell := fmt.Sprint(x, ",", y)
				if other, taken := at[cell]; taken {
					t.Fatalf("panel %q lies over %q", title, other)
				}
				at[cell] = title
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q is wider than the page", title)
		}
		for _, target := range p.Targets {
			if q, ok := target.(*prometheus.Dataquery); !ok || q.Expr == "" {
				t.Errorf("panel %q has a query that is none of Prometheus: %+v", title, target)
			}
		}
	}
}

// What Grafana would drop, or take for something else, is found.
func TestStrictnessIsReal(t *testing.T) {
	good := read(t)
	for what, change := range map[string][2]string{
		"a field that there is not":           {`"schemaVersion"`, `"schema_version"`},
		"a field of panels that there is not": {`"gridPos"`, `"grid_pos"`},
		"a number that is a word":             {`"h": 8`, `"h": "8"`},
		"a query with a field too many":       {`"expr"`, `"promql"`},
		"an option that there is not":         {`"reduceOptions"`, `"reduce"`},
	} {
		bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(bad, good) {
			t.Fatalf("%s: %s is not there", what, change[0])
		}
		if _, err := strict(bad); err == nil {
			t.Errorf("%s is not found", what)
		}
	}
}

// Grafana's own text of it says the same: nothing of it is lost on the way.
func TestNothingIsLost(t *testing.T) {
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
		t.Errorf("lost: %s", cmp.Diff([]string(nil), lost))
	}
}

// missing lists what of a is not in b, by its path. There may be more in b.
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
