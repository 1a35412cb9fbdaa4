package ctxshutdown_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// lineAbove returns the file and the number of the line above the one that calls it.
func lineAbove() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", filepath.Base(file), line-1)
}

// hold creates a child of parent with the given name, and acquires n guards of that child.
func hold(parent context.Context, name string, n int) *ctxshutdown.Swansong {
	s := child(parent, ctxshutdown.WithName(name))
	for range n {
		s.Guard()
	}
	return s
}

type entries = []ctxshutdown.GuardEntry

func TestReport_GroupsGuardsByScope(t *testing.T) {
	for _, test := range []struct {
		name    string
		build   func(root *ctxshutdown.Swansong)
		entries entries
		text    string
	}{
		{"nothing", func(root *ctxshutdown.Swansong) { child(root).Done(); root.Guard().Release() }, nil, "no guards"},
		{"one on an unnamed root", func(root *ctxshutdown.Swansong) { root.Guard() },
			entries{{Count: 1}}, "1 guard: (unnamed) ×1"},
		{"a path has the names of named scopes", func(root *ctxshutdown.Swansong) {
			hold(child(hold(root, "http", 0)), "conn-42", 2)
		}, entries{{Path: "http/conn-42", Count: 2}}, "2 guards: http/conn-42 ×2"},
		{"through derived and hard contexts", func(root *ctxshutdown.Swansong) {
			http := hold(root, "http", 0)
			hold(context.WithValue(http, key("k"), 1), "a", 1)
			hold(http.Work(), "b", 1)
			hold(context.WithoutCancel(http), "c", 1)
		}, entries{{Path: "http/a", Count: 1}, {Path: "http/b", Count: 1}, {Path: "http/c", Count: 1}}, "3 guards: http/a ×1, http/b ×1, http/c ×1"},
		{"an unnamed scope has the path of its parent", func(root *ctxshutdown.Swansong) {
			http := hold(root, "http", 1)
			hold(http, "", 2)
		}, entries{{Path: "http", Count: 3}}, "3 guards: http ×3"},
		{"scopes of the same name are one entry", func(root *ctxshutdown.Swansong) {
			hold(root, "job", 1)
			hold(root, "job", 4)
		}, entries{{Path: "job", Count: 5}}, "5 guards: job ×5"},
		{"most guards first, then by path", func(root *ctxshutdown.Swansong) {
			hold(root, "b", 1)
			hold(root, "few", 2)
			hold(root, "a", 1)
			hold(root, "many", 7)
		}, entries{{Path: "many", Count: 7}, {Path: "few", Count: 2}, {Path: "a", Count: 1}, {Path: "b", Count: 1}},
			"11 guards: many ×7, few ×2, a ×1, b ×1"},
	} {
		for _, stopped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stopped %v", test.name, stopped), func(t *testing.T) {
				root := ctxshutdown.New(t.Context())
				test.build(root)
				if stopped {
					root.Shutdown()
				}
				r := root.GuardReport()
				testkit.Equal(t, "Entries", r.Entries(), test.entries)
				if got := r.String(); got != test.text {
					t.Errorf("String: %q, want %q", got, test.text)
				}
				if r.Count() != root.GuardCount() {
					t.Errorf("Count %d, GuardCount %d", r.Count(), root.GuardCount())
				}
			})
		}
	}
}

func TestReport_CoversSubtreeOnly(t *testing.T) {
	root := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
	root.Guard()
	http := hold(root, "http", 1)
	hold(http, "conn", 1)
	if got, want := http.GuardReport().String(), "2 guards: app/http ×1, app/http/conn ×1"; got != want {
		t.Errorf("report of a subtree %q, want %q: paths from the root, and guards of the subtree only", got, want)
	}
}

func TestReport_DoesNotChangeOnceMade(t *testing.T) {
	root := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
	g := root.Guard()
	r := root.GuardReport()
	g.Release()
	r.Entries()[0].Path = "changed"
	if got, want := r.String(), "1 guard: app ×1"; got != want || root.GuardCount() != 0 {
		t.Errorf("report after a release %q, want the unchanged %q", got, want)
	}
}

// String and LogValue list ten groups at most, because errors and log lines contain them. Entries
// returns all groups.
func TestReport_TextListsAtMostTenGroups(t *testing.T) {
	for _, test := range []struct {
		groups int
		rest   string
	}{{9, ""}, {10, ""}, {12, " and 2 more groups"}, {500, " and 490 more groups"}} {
		root := ctxshutdown.New(t.Context())
		var want []string
		for i := range test.groups {
			hold(root, fmt.Sprintf("conn\n%03d", i), 1)
			if i < 10 {
				want = append(want, fmt.Sprintf(`conn\n%03d ×1`, i))
			}
		}
		r := root.GuardReport()
		list := strings.Join(want, ", ") + test.rest
		if got := r.String(); got != fmt.Sprintf("%d guards: %s", test.groups, list) || strings.Contains(got, "\n") {
			t.Errorf("%d groups: %s", test.groups, got)
		}
		if len(r.Entries()) != test.groups {
			t.Errorf("%d entries, want all %d", len(r.Entries()), test.groups)
		}
		if got := r.LogValue().Group()[1].Value.String(); got != list {
			t.Errorf("%d groups: LogValue has %s", test.groups, got)
		}
	}
}

func TestReport_LogLineHasCountAndGroupsOfGuards(t *testing.T) {
	var buffer bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&buffer, nil))
	logged := func(r ctxshutdown.GuardReport) (got any) {
		buffer.Reset()
		logger.Info("draining", "guards", r)
		var line map[string]any
		if err := json.Unmarshal(buffer.Bytes(), &line); err != nil {
			t.Fatalf("%v in %s", err, &buffer)
		}
		return line["guards"]
	}
	root := ctxshutdown.New(t.Context())
	want := []any{map[string]any{"count": 0.0}, map[string]any{"count": 3.0, "held": "http ×2, flush ×1"}}
	got := []any{logged(root.GuardReport())}
	hold(root, "http", 2)
	hold(root, "flush", 1)
	got = append(got, logged(root.GuardReport()))
	testkit.Equal(t, "as JSON", got, want)
}

// Each function that acquires a guard is called once. The report has the site and the age of each
// guard.
func TestReport_HasSourceLineAndAgeOfEachGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
		jobs := child(root, ctxshutdown.WithName("jobs"))
		group := ctxshutdown.NewGroup(root, ctxshutdown.WithName("group"))
		wait := func(ctx context.Context) { <-ctx.Done() }
		var sites []string
		var guards []*ctxshutdown.Guard
		next := func(g *ctxshutdown.Guard, site string) {
			guards, sites = append(guards, g), append(sites, site)
			time.Sleep(time.Second)
		}

		g := root.Guard()
		next(g, lineAbove())
		g, _ = root.TryGuard()
		next(g, lineAbove())
		g, _ = ctxshutdown.Acquire(context.WithValue(jobs, key("k"), 1))
		next(g, lineAbove())
		g = g.Clone()
		next(g, lineAbove())
		root.Go(wait)
		next(nil, lineAbove())
		ctxshutdown.Go(root, wait)
		next(nil, lineAbove())
		group.Go(func(ctx context.Context) error { wait(ctx); return nil })
		next(nil, lineAbove())
		group.TryGo(func(ctx context.Context) error { wait(ctx); return nil })
		next(nil, lineAbove())

		paths := []string{"app", "app", "app/jobs", "app/jobs", "app", "app", "app/group", "app/group"}
		var want entries
		var text []string
		for i, site := range sites {
			age := time.Duration(len(sites)-i) * time.Second
			want = append(want, ctxshutdown.GuardEntry{Path: paths[i], Count: 1, Site: site, Oldest: age})
			text = append(text, fmt.Sprintf("%s ×1 at %s for %v", paths[i], site, age))
		}
		r := root.GuardReport()
		testkit.Equal(t, "Entries, oldest first", r.Entries(), want)
		if want := "8 guards: " + strings.Join(text, ", "); r.String() != want {
			t.Errorf("String:\n%s\nwant\n%s", r, want)
		}

		for _, g := range guards {
			g.Release()
		}
		root.Force(nil)
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		<-root.Completion().Done()
		if r := root.GuardReport(); r.Count() != 0 {
			t.Errorf("all guards are released, and the report is %v", r)
		}
	})
}

func TestReport_GroupsGuardsByLineThatAcquiredThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
		var young, old string
		var guards []*ctxshutdown.Guard
		for range 3 {
			guards = append(guards, root.Guard())
			old = lineAbove()
			time.Sleep(time.Minute)
		}
		for range 5 {
			guards = append(guards, root.Guard())
			young = lineAbove()
		}
		guards[0].Release()
		guards[4].Release()
		want := entries{{Path: "app", Count: 2, Site: old, Oldest: 2 * time.Minute}, {Path: "app", Count: 4, Site: young}}
		testkit.Equal(t, "Entries", root.GuardReport().Entries(), want)
	})
}

func TestDrainError_NamesGuardsStillHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := ctxshutdown.New(t.Context())
		hold(root, "http", 2)
		ctx := owned(t)(context.WithTimeoutCause(context.Background(), time.Second, errCause))
		err := root.Shutdown().Wait(ctx)
		var drain *ctxshutdown.DrainError
		if !errors.As(err, &drain) || drain.Cause != errCause || errors.Unwrap(err) != errCause {
			t.Fatalf("%#v, want a DrainError with the cause of the context", err)
		}
		testkit.Equal(t, "report of the error", drain.Report.Entries(), entries{{Path: "http", Count: 2}})
		const text = "ctxshutdown: Wait ended (the cause) with work still running: 2 guards: http ×2; wait longer, or call Force to cancel that work"
		if err.Error() != text {
			t.Errorf("DrainError prints as %q, want %q", err, text)
		}
		idle := ctxshutdown.New(t.Context()).Completion().Wait(owned(t)(context.WithTimeout(context.Background(), time.Second)))
		const idleText = "ctxshutdown: Wait ended (context deadline exceeded) although no guard was held; if the scope was not told to stop, call Shutdown before Wait"
		if idle.Error() != idleText {
			t.Errorf("DrainError without guards prints as %q, want %q", idle, idleText)
		}
	})
}

func TestSwansong_AndContextsDerivedFromItPrintPathOfScope(t *testing.T) {
	root := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	s := child(root, ctxshutdown.WithName("http"))
	got := []any{
		root, child(root), s, s.Work(), ctxshutdown.Work(request{s, "r"}), ctxshutdown.New(t.Context()),
		owned(t)(context.WithCancel(s)), owned(t)(context.WithCancel(s.Work())), child(s.Work(), ctxshutdown.WithName("conn")),
	}
	want := []string{
		"Swansong(app)", "Swansong(app)", "Swansong(app/http)", "Swansong(app/http).Work", "ctxshutdown_test.request.Work", "Swansong",
		"Swansong(app/http).WithCancel", "Swansong(app/http).Work.WithCancel", "Swansong(app/http/conn)",
	}
	for i := range got {
		if text := fmt.Sprint(got[i]); text != want[i] {
			t.Errorf("context prints as %q, want %q", text, want[i])
		}
	}
}
