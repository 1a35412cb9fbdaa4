package debugpage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain/internal/debugpage"
	"github.com/swansong-go/swansong/internal/testkit"
)

// The handler serves the JSON format in each phase of a shutdown. UPDATE_GOLDEN=1 rewrites the
// expected files.
func TestHandler_ServesJSONInEachPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{}
		p.enter(graceful.Serving, 0)
		root := ctxshutdown.New(context.Background(), ctxshutdown.WithName("shop"), ctxshutdown.WithTrace())
		h := debugpage.New(root, p, debugpage.Options{LocalOnly: true})
		check := func(name string) {
			t.Helper()
			w := get(h, "/debug/shutdown?format=json")
			var got bytes.Buffer
			body := regexp.MustCompile(`\w+_test\.go:\d+`).ReplaceAll(w.Body.Bytes(), []byte("some_test.go:0"))
			if err := json.Indent(&got, body, "", "  "); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				os.MkdirAll(filepath.Dir(path), 0o755)
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			testkit.Equal(t, name, got.String(), strings.ReplaceAll(string(want), "\r\n", "\n"))
		}
		check("1-idle")
		web := child(root, "http")
		conn42 := acquire(child(web, "conn-42"), 2)
		time.Sleep(1500 * time.Millisecond)
		conn7 := acquire(child(web, "conn-7"), 1)
		flush := acquire(child(root, "flush"), 3)
		time.Sleep(time.Second)
		check("2-running")
		cause := errors.New("signal: terminated")
		p.enter(graceful.LameDuck, 3*time.Second, func(s *graceful.Status) { s.Cause, s.Signals = cause, 1 })
		time.Sleep(time.Second)
		check("3-lame-duck")
		time.Sleep(2 * time.Second)
		p.enter(graceful.Soft, 10*time.Second)
		root.ShutdownCause(cause)
		synctest.Wait()
		conn7()
		flush()
		time.Sleep(4 * time.Second)
		p.enter(graceful.Soft, 12*time.Second, func(s *graceful.Status) {
			s.Since, s.Extended, s.Reason = s.Since.Add(-4*time.Second), 5*time.Second, "one more\nbatch"
		})
		check("4-draining")
		time.Sleep(12 * time.Second)
		p.enter(graceful.Hard, 0, func(s *graceful.Status) { s.Signals = 2 })
		root.Force(nil)
		synctest.Wait()
		check("5-forced")
		time.Sleep(time.Second)
		conn42()
		synctest.Wait()
		check("6-complete")
		root.Guard().Release()
	})
}

// If the scope belongs to no process, the steps on the page are the states of the scope.
func TestHandler_ShowsScopeStatesWithoutProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := debugpage.New(s, nil, debugpage.Options{LocalOnly: true})
		release := acquire(s, 1)
		step := func(state, steps string) {
			t.Helper()
			v := decode(t, get(h, "/?format=json").Body.String())
			if v.State != state || v.Phase != nil {
				t.Errorf("state %v, phase %v; want %v and none", v.State, v.Phase, state)
			}
			page := get(h, "/").Body.String()
			var got []string
			for _, m := range regexp.MustCompile(`<li data-state="(\w+)"[^>]*>\s*<b>([\w ]+)</b>`).FindAllStringSubmatch(page, -1) {
				got = append(got, m[2]+" "+m[1])
			}
			testkit.Equal(t, "steps", strings.Join(got, ", "), steps)
		}
		step("Running", "Running current, Shutting down todo, Complete todo")
		s.Shutdown()
		step("ShuttingDown", "Running done, Shutting down current, Complete todo")
		s.Force(nil)
		step("ShuttingDown", "Running done, Shutting down done, Forced current, Complete todo")
		release()
		step("Complete", "Running done, Shutting down done, Forced done, Complete current")
		late := s.Guard()
		step("ShuttingDown", "Running done, Shutting down done, Forced current, Complete todo")
		late.Release()
		step("Complete", "Running done, Shutting down done, Forced done, Complete current")
	})
}

// The phase Exit follows a complete drain as well as a drain that was given up. Here the drain was
// complete, so the page must not say that it was given up.
func TestHandler_DoesNotShowDrainedProcessAsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{}
		s := ctxshutdown.New(context.Background())
		h := debugpage.New(s, p, debugpage.Options{LocalOnly: true})
		p.enter(graceful.Soft, time.Minute)
		s.Shutdown()
		p.enter(graceful.Exit, 0)
		page := get(h, "/").Body.String()
		if !strings.Contains(page, `<h1 id="state">Drained</h1>`) || strings.Contains(page, "given up") {
			t.Errorf("the drained process is shown as given up:\n%s", page)
		}
	})
}

// While no client requests the page, the handler records the number of guards only at the stop of
// the scope, and when the scope is complete or forced.
func TestHandler_TimelineRecordsGuardsHeldAtStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := debugpage.New(s, nil, debugpage.Options{LocalOnly: true})
		release := acquire(child(s, "a"), 5)
		s.Shutdown()
		synctest.Wait() // wait until the handler has recorded the stop
		release()
		synctest.Wait()
		time.Sleep(time.Hour)
		v := decode(t, get(h, "/?format=json").Body.String())
		if diff := cmp.Diff([]struct{ Guards int }{{5}, {0}}, v.Timeline.Points); diff != "" || v.AtStop != 5 {
			t.Errorf("%d at the stop; timeline (-want +got):\n%s", v.AtStop, diff)
		}
		if got := fmt.Sprint(v.Timeline.Marks); got != "[{Soft} {Complete}]" {
			t.Errorf("marks %v", got)
		}
	})
}

// The timeline has a bounded length, even if the drain takes long.
func TestHandler_LimitsLengthOfTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := debugpage.New(s, nil, debugpage.Options{LocalOnly: true})
		var guards []*ctxshutdown.Guard
		for range 2000 {
			guards = append(guards, s.Guard())
		}
		s.Shutdown()
		var last string
		for _, g := range guards {
			time.Sleep(time.Second)
			last = get(h, "/?format=json").Body.String()
			g.Release()
		}
		v := decode(t, last)
		points := v.Timeline.Points
		if n := len(points); n < 100 || n > 240 || points[0].Guards != 2000 || points[n-1].Guards != 1 {
			t.Errorf("%d points, from %v to %v", n, points[0], points[n-1])
		}
	})
}

// The page shows a limited number of rows for ten thousand scopes. The sums include the hidden
// rows.
func TestHandler_LimitsRowsOfScopeTree(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	h := debugpage.New(s, nil, debugpage.Options{LocalOnly: true})
	total := 0
	hold := func(path string, n int) {
		at := s
		for _, name := range strings.Split(path, "/") {
			at = child(at, name)
		}
		acquire(at, n)
		total += n
	}
	for i := range 4000 {
		hold(fmt.Sprintf("http/conn-%d/stream-%d", i/4, i), 1+i%3)
	}
	for i := range 6000 {
		hold(fmt.Sprintf("job %d %s", i, strings.Repeat(`"<`, 60)), 1)
	}
	const most = 400_000
	stream := openStream(h, localRequest("GET", "/?format=events&part=html"))
	_, event := stream.next(t)
	stream.leave()
	<-stream.done
	body := get(h, "/?format=json").Body.String()
	for what, n := range map[string]int{"page": get(h, "/").Body.Len(), "JSON": len(body), "event": len(event)} {
		if n > most {
			t.Errorf("the %s has %d bytes, want at most %d", what, n, most)
		}
	}
	v := decode(t, body)
	rows := 0
	var check func(n node)
	check = func(n node) {
		sum := 0
		for _, kid := range n.Children {
			rows++
			sum += kid.Guards
			check(kid)
		}
		if n.Hidden != nil {
			sum += n.Hidden.Guards
		}
		if (len(n.Children) > 0 || n.Hidden != nil) && sum != n.Guards {
			t.Errorf("%s: %d guards, but %d in the rows below", n.Path, n.Guards, sum)
		}
	}
	check(v.Tree)
	if rows > 200 || v.Guards != total || v.Tree.Guards != total || v.Scopes != 10_000 || v.Tree.Scopes != 10_000 {
		t.Errorf("%d rows, %d and %d guards of %d in %d and %d scopes", rows, v.Guards, v.Tree.Guards, total, v.Scopes, v.Tree.Scopes)
	}
	if v.Blockers[0].Path != "http" || v.Blockers[0].Scopes != 4000 {
		t.Errorf("the first blocker is %+v", v.Blockers[0])
	}

	named := ctxshutdown.New(context.Background(), ctxshutdown.WithName("root"))
	for i := range 9 {
		acquire(child(named, fmt.Sprint("job-", i)), 9-i)
	}
	if b := decode(t, get(debugpage.New(named, nil, debugpage.Options{LocalOnly: true}), "/?format=json").Body.String()).Blockers; len(b) != 5 || b[0].Path != "root/job-0" {
		t.Errorf("below a named root the blockers are %+v", b)
	}

	v = decode(t, get(h, "/?format=json&q=STREAM-3999").Body.String())
	if v.Tree.Scopes != 1 || v.Scopes != 10_000 || v.Tree.Children[0].Name != "http/conn-999/stream-3999" {
		t.Errorf("the filter returns %+v", v.Tree)
	}
}

// The tree of scopes on the page has a limited depth. The path of a deeper scope continues in the
// last row.
func TestHandler_LimitsDepthOfScopeTree(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	at := s
	for i := range 500 {
		at = child(at, fmt.Sprint("level-", i))
		defer at.Guard().Release()
	}
	v := decode(t, get(debugpage.New(s, nil, debugpage.Options{LocalOnly: true}), "/?format=json").Body.String())
	depth := 0
	for n := v.Tree; len(n.Children) > 0; n = n.Children[0] {
		depth++
	}
	if depth > 12 || v.Tree.Guards != 500 {
		t.Errorf("%d levels with %d guards", depth, v.Tree.Guards)
	}
}

// The page lists what delays the shutdown most only if the tree of scopes is longer than that list.
func TestHandler_ListsWhatDelaysShutdownMostIfTreeIsLarge(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	h := debugpage.New(s, nil, debugpage.Options{LocalOnly: true})
	for i := range 9 {
		defer acquire(child(s, fmt.Sprintf("job-%d", i)), 1)()
		if i != 1 && i != 8 {
			continue
		}
		isListed := strings.Contains(get(h, "/").Body.String(), "<ol>")
		testkit.Equal(t, fmt.Sprintf("with %d scopes, a list", i+1), isListed, i == 8)
	}
}

// Labels of steps that follow each other closely are on different lines of the chart. A label for
// which no line has room is left out.
func TestHandler_LabelsOfChartDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{}
		s := ctxshutdown.New(context.Background())
		h := debugpage.New(s, p, debugpage.Options{LocalOnly: true})
		defer acquire(s, 1)()
		for _, phase := range []graceful.Phase{graceful.LameDuck, graceful.Soft, graceful.Hard, graceful.Exit} {
			p.enter(phase, 0)
			get(h, "/")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		var got []string
		label := regexp.MustCompile(`<text class="mark"[^>]* y="(\d+)"[^>]*>([^<]*)<`)
		for _, m := range label.FindAllStringSubmatch(get(h, "/").Body.String(), -1) {
			got = append(got, m[1]+" "+m[2])
		}
		testkit.Equal(t, "lines and labels", strings.Join(got, ", "), "14 Lame duck, 27 Soft, 40 Hard, 40 ")
	})
}
