package ctxshutdown_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The test compares every form of a report with the golden files in testdata/reports.
func TestReport_MatchesGoldenFiles(t *testing.T) {
	for name, build := range map[string]func(root *ctxshutdown.Swansong){
		"nothing-held": func(*ctxshutdown.Swansong) {},
		"untraced": func(root *ctxshutdown.Swansong) {
			root.Guard()
			http := hold(root, "http", 0)
			hold(http, "conn-42", 2)
			hold(http, "conn-7", 1)
			hold(root, "flush", 3)
			hold(root, "", 1)
		},
		"traced": func(root *ctxshutdown.Swansong) {
			app := child(root, ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
			http := child(app, ctxshutdown.WithName("http"))
//line handler.go:12
			http.Guard()
			time.Sleep(90 * time.Second)
			for range 3 {
//line handler.go:31
				http.Guard()
				time.Sleep(time.Second)
			}
//line flush.go:7
			app.Guard()
			time.Sleep(1500 * time.Microsecond)
//line report_golden_test.go:55
		},
		"partly-traced": func(root *ctxshutdown.Swansong) {
			hold(root, "plain", 5)
			traced := child(root, ctxshutdown.WithName("traced"), ctxshutdown.WithTrace())
//line job.go:1
			traced.Guard()
//line report_golden_test.go:62
			time.Sleep(time.Minute)
		},
		"hostile-names": func(root *ctxshutdown.Swansong) {
			for i, name := range []string{
				"two\nlines\r\n", "\x1b[31mred\x1b[0m", "tab\tand\x00nul", `quotes " and \ backslash`, "half a rune \xff\xfe",
				"\u202eright to left", "a/slash is kept", "×9 at evil.go:1, fake", "%s%d%!", strings.Repeat("long ", 60), "ünïcødé 界",
			} {
				hold(root, name, 20-i)
			}
		},
		"many-groups": func(root *ctxshutdown.Swansong) {
			for i := range 200 {
				hold(root, fmt.Sprintf("conn-%03d", i), 1+i%3)
			}
		},
		"goroutines": func(root *ctxshutdown.Swansong) {
			app := child(root, ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
			jobs := child(app, ctxshutdown.WithName("jobs"))
			for range 2 {
//line jobs.go:20
				jobs.Go(straggle)
			}
			time.Sleep(time.Second)
//line flush.go:40
			ctxshutdown.Go(app.Work(), straggle)
//line report_golden_test.go:91
			time.Sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := ctxshutdown.New(context.Background())
				build(root)
				checkGolden(t, name, everyForm(t, root))
				root.Force(nil)
			})
		})
	}
}

// everyForm returns a report of root in every form in which a user can see it.
func everyForm(t *testing.T, root *ctxshutdown.Swansong) string {
	var b bytes.Buffer
	r := root.GuardReport()
	fmt.Fprintf(&b, "String: %s\nEntries:\n", r)
	for _, e := range r.Entries() {
		fmt.Fprintf(&b, "  %+v\n", e)
	}
	noTime := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{}
		}
		return a
	}}
	fmt.Fprint(&b, "slog, text: ")
	slog.New(slog.NewTextHandler(&b, noTime)).Info("draining", "guards", r)
	fmt.Fprint(&b, "slog, JSON: ")
	slog.New(slog.NewJSONHandler(&b, noTime)).Info("draining", "guards", r)

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := root.Shutdown().Wait(ctx)
	fmt.Fprintf(&b, "Wait: %v\n", err)
	var drain *ctxshutdown.DrainError
	if errors.As(err, &drain) && drain.Stacks != "" {
		fmt.Fprintf(&b, "Stacks:\n%s", drain.Stacks)
	}
	if n := strings.Count(fmt.Sprint(r, err), "\n"); n > 0 {
		t.Errorf("the report or the error has %d lines, want one", n+1)
	}
	return b.String()
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// Remove the directory of this package from the file paths in stacks: it differs between
	// machines.
	got = strings.ReplaceAll(got, here+string(filepath.Separator), "")
	path := filepath.Join("..", "testdata", "reports", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; run go test with -update to accept the change):\n%s", path, diff)
	}
}

func straggle(ctx context.Context) {
//line straggler.go:9
	<-ctx.Done()
}
