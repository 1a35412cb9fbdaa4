package ctxshutdown_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestTrace_CoversSubtreeOnly(t *testing.T) {
	root := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
	traced := child(root, ctxshutdown.WithName("traced"), ctxshutdown.WithTrace())
	hold(root, "beside", 2)
	root.Guard()
	traced.Guard()
	traced.Guard()
	hold(traced, "below", 1)
	sites := map[string]bool{}
	for _, e := range root.GuardReport().Entries() {
		sites[e.Path] = e.Site != ""
	}
	want := map[string]bool{"app": false, "app/beside": false, "app/traced": true, "app/traced/below": true}
	testkit.Equal(t, "scopes with sites", sites, want)
	if n := root.GuardReport().Count(); n != 6 {
		t.Errorf("%d guards reported, want 6", n)
	}
}

func TestTrace_IsEnabledByEnvironmentVariable(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "true": true, "0": false, "false": false, "": false, "nonsense": false} {
		t.Run(value, func(t *testing.T) {
			isTraced := func(s *ctxshutdown.Swansong) bool {
				defer s.Guard().Release()
				return s.GuardReport().Entries()[0].Site != ""
			}
			t.Setenv("CTXSHUTDOWN_TRACE", "")
			before := ctxshutdown.New(t.Context())
			t.Setenv("CTXSHUTDOWN_TRACE", value)
			root := ctxshutdown.New(t.Context(), ctxshutdown.WithName("root"))
			got := []bool{isTraced(root), isTraced(child(root)), isTraced(child(t.Context())), isTraced(before), isTraced(child(before))}
			testkit.Equal(t, "root, child, root by WithCancel, root made before, a child of that", got, []bool{want, want, want, false, false})
		})
	}
}

// records collects the lines that a JSON logger writes.
type records struct {
	mu   sync.Mutex
	list []map[string]any
}

func (r *records) Write(p []byte) (int, error) {
	var line map[string]any
	if err := json.Unmarshal(p, &line); err != nil {
		return 0, err
	}
	delete(line, "time")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, line)
	return len(p), nil
}

func (r *records) logger() ctxshutdown.Option {
	return ctxshutdown.WithLogger(slog.New(slog.NewJSONHandler(r, nil)))
}

func (r *records) take() []map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.list = nil }()
	return r.list
}

// giveUp calls Wait with a time-out of one second. If s is not complete by then, the scope records
// when this Wait gave up.
func giveUp(s *ctxshutdown.Swansong) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Completion().Wait(ctx)
}

func TestTrace_LogsReleasesAfterForceOrAbandonedDrain(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(root, s *ctxshutdown.Swansong)
		late bool
	}{
		{"running", func(_, _ *ctxshutdown.Swansong) {}, false},
		{"stopped", func(root, _ *ctxshutdown.Swansong) { root.Shutdown() }, false},
		{"forced", func(_, s *ctxshutdown.Swansong) { s.Force(nil) }, true},
		{"root forced", func(root, _ *ctxshutdown.Swansong) { root.Force(nil) }, true},
		{"drain given up", func(_, s *ctxshutdown.Swansong) { s.Shutdown(); giveUp(s) }, true},
		{"drain of the root given up", func(root, _ *ctxshutdown.Swansong) { root.Shutdown(); giveUp(root) }, true},
		{"wait given up before the stop", func(root, _ *ctxshutdown.Swansong) { giveUp(root) }, false},
		{"drain of a sibling given up", func(root, _ *ctxshutdown.Swansong) { giveUp(hold(root, "beside", 1)) }, false},
		{"Wait called by mistake with the scope itself", func(root, s *ctxshutdown.Swansong) { root.Shutdown().Wait(s) }, false},
	} {
		for _, where := range []struct {
			name  string
			trees func(ctx context.Context, r *records) (root, s *ctxshutdown.Swansong)
		}{
			{"root traced, with the logger", func(ctx context.Context, r *records) (root, s *ctxshutdown.Swansong) {
				root = ctxshutdown.New(ctx, ctxshutdown.WithName("app"), ctxshutdown.WithTrace(), r.logger())
				return root, child(root, ctxshutdown.WithName("s"))
			}},
			{"child traced, root with the logger", func(ctx context.Context, r *records) (root, s *ctxshutdown.Swansong) {
				root = ctxshutdown.New(ctx, ctxshutdown.WithName("app"), r.logger())
				return root, child(root, ctxshutdown.WithName("s"), ctxshutdown.WithTrace())
			}},
			{"child traced, with the logger", func(ctx context.Context, r *records) (root, s *ctxshutdown.Swansong) {
				root = ctxshutdown.New(ctx, ctxshutdown.WithName("app"))
				return root, child(root, ctxshutdown.WithName("s"), ctxshutdown.WithTrace(), r.logger())
			}},
		} {
			t.Run(test.name+", "+where.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := new(records)
					root, s := where.trees(t.Context(), r)
					g := s.Guard()
					site := lineAbove()
					begin := time.Now()
					test.end(root, s)
					time.Sleep(time.Minute)
					g.Release()
					g.Release()
					var want []map[string]any
					if test.late {
						want = []map[string]any{{
							"level": "WARN", "msg": "guard released late", "scope": "app/s", "site": site, "held": float64(time.Since(begin)),
						}}
					}
					testkit.Equal(t, "logged", r.take(), want)
				})
			})
		}
	}
}

// When a guard has been released, the next guard of the scope uses its record again. A report still
// lists each guard that is held with the line that acquired it.
func TestTrace_ReportsGuardsInAnyOrderOfRelease(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithTrace())
	for range 2 {
		var early, late []*ctxshutdown.Guard
		var earlySite, lateSite string
		for range 100 {
			early = append(early, s.Guard())
			earlySite = lineAbove()
		}
		for i := 0; i < len(early); i += 2 {
			early[i].Release()
			early[i].Release()
			late = append(late, s.Guard())
			lateSite = lineAbove()
		}
		got := map[string]int{}
		for _, e := range s.GuardReport().Entries() {
			got[e.Site] += e.Count
		}
		testkit.Equal(t, "guards by site", got, map[string]int{earlySite: 50, lateSite: 50})
		for _, g := range append(early, late...) {
			g.Release()
		}
		if got := s.GuardReport().Entries(); len(got) != 0 {
			t.Errorf("still reported as held: %v", got)
		}
	}
}

// A copied guard is released twice. The second release must not remove the record of another guard.
func TestTrace_SecondReleaseKeepsRecordsOfOtherGuards(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithTrace())
	var site string
	for range 2 {
		s.Guard()
		site = lineAbove()
	}
	g := s.Guard()
	c := new(ctxshutdown.Guard)
	reflect.ValueOf(c).Elem().Set(reflect.ValueOf(g).Elem()) // by reflection, because go vet would report *c = *g
	g.Release()
	c.Release()
	var got []string
	for _, e := range s.GuardReport().Entries() {
		got = append(got, fmt.Sprint(e.Site, " ×", e.Count))
	}
	testkit.Equal(t, "still reported as held", got, []string{site + " ×2"})
}

// When several goroutines release guards after Force, each release is logged with the line of the
// source that made it.
func TestTrace_LogsSourceLineOfEachConcurrentReleaseAfterForce(t *testing.T) {
	const goroutines, each = 4, 200
	r := new(records)
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithTrace(), r.logger())
	s.Force(nil)
	var wg sync.WaitGroup
	sites := make([]string, goroutines)
	for i := range goroutines {
		wg.Go(func() {
			for range each {
				if i%2 == 0 {
					s.Guard().Release()
					sites[i] = lineAbove()
				} else {
					s.Guard().Release()
					sites[i] = lineAbove()
				}
			}
		})
	}
	wg.Wait()
	got := map[string]int{}
	for _, line := range r.take() {
		got[line["site"].(string)]++
	}
	testkit.Equal(t, "late releases by site", got, map[string]int{sites[0]: 2 * each, sites[1]: 2 * each})
}

// A late release is logged after the guard has been released, so a slow logger cannot delay the
// drain.
func TestTrace_ReleaseAfterForceTakesEffectBeforeItIsLogged(t *testing.T) {
	var s *ctxshutdown.Swansong
	logged := false
	logger := slog.New(slog.NewTextHandler(lateWriter(func() {
		logged = true
		if s.State() != ctxshutdown.Complete {
			t.Errorf("state %v while a late release is logged", s.State())
		}
		panic("a logger that panics")
	}), nil))
	s = ctxshutdown.New(t.Context(), ctxshutdown.WithTrace(), ctxshutdown.WithLogger(logger))
	g := s.Guard()
	s.Force(nil)
	if got := panicOf(g.Release); got != "a logger that panics" || !logged {
		t.Errorf("logged %v, panic %q", logged, got)
	}
	if s.GuardCount() != 0 || s.GuardReport().Count() != 0 {
		t.Errorf("%d guards are held, report: %v", s.GuardCount(), s.GuardReport())
	}
}

type lateWriter func()

func (f lateWriter) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// Each function that creates a root is called. If the root is garbage collected without having been
// stopped, the log names the line that called the function.
func TestTrace_ReportsWhereGarbageCollectedRootWasCreated(t *testing.T) {
	for name, lose := range map[string]func(opts ...ctxshutdown.Option) (site string){
		"WithCancel": func(opts ...ctxshutdown.Option) string {
			s, _ := ctxshutdown.WithCancel(context.Background(), opts...)
			site := lineAbove()
			s.Guard()
			return site
		},
		"NewGroup": func(opts ...ctxshutdown.Option) string {
			ctxshutdown.NewGroup(context.Background(), opts...).SetLimit(1)
			return lineAbove()
		},
		"New, by the environment": func(opts ...ctxshutdown.Option) string {
			t.Setenv("CTXSHUTDOWN_TRACE", "1")
			ctxshutdown.New(context.Background(), opts[1:]...).Completion()
			return lineAbove()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, reports := claim{t, "docs/internals/core.md#lost-roots"}, make(lines, 10)
			site := lose(ctxshutdown.WithTrace(), ctxshutdown.WithName("lost"), ctxshutdown.WithLogger(slog.New(slog.NewTextHandler(reports, nil))))
			want := fmt.Sprintf(`^time=\S+ level=WARN msg="root scope garbage collected without Shutdown" scope=lost site=%s\n$`, regexp.QuoteMeta(site))
			got := reports.await(c)
			c.isTrue(fmt.Sprintf("%q matches %s", got, want), regexp.MustCompile(want).MatchString(got))
		})
	}
}

func TestTrace_LogsNothingByDefault(t *testing.T) {
	reports := make(lines, 100)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(reports, nil)))
	for _, opts := range [][]ctxshutdown.Option{nil, {ctxshutdown.WithTrace()}, {ctxshutdown.WithTrace(), ctxshutdown.WithLogger(nil)}} {
		func() {
			// This root is garbage-collected without having been shut down.
			ctxshutdown.New(context.Background(), opts...).Completion()
			s := ctxshutdown.New(context.Background(), opts...)
			g := s.Guard()
			s.Force(nil)
			g.Release() // this guard is released late
		}()
		runtime.GC()
		runtime.GC()
	}
	// Only the last root has a logger, and it is garbage-collected after the others. So if the
	// first line in the log is about it, the roots without a logger have logged nothing.
	ctxshutdown.New(context.Background(), ctxshutdown.WithTrace(), ctxshutdown.WithName("logged"), ctxshutdown.WithLogger(slog.Default()))
	if got := reports.await(claim{t, "docs/internals/core.md#semantic-12"}); !strings.Contains(got, "scope=logged") || len(reports) > 0 {
		t.Errorf("a scope without a logger has logged: %s", got)
	}
}

// A report has the right site of a guard even if the runtime has moved the stack of the goroutine.
func TestTrace_RecordsRightLineIfStackMoves(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithTrace())
	var site string
	var deeper func(n int) // calls itself, so that the stack grows and the runtime moves it
	deeper = func(n int) {
		var room [512]byte
		room[n%len(room)] = 1
		g := s.Guard()
		site = lineAbove()
		defer g.Release()
		if n > 0 {
			deeper(n - int(room[n%len(room)]))
		} else if r := s.GuardReport(); len(r.Entries()) != 1 || r.Entries()[0].Site != site {
			t.Errorf("report %v, want all guards at %s", r, site)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { // garbage collections shrink the stacks, which moves them
		for range 10 {
			runtime.GC()
		}
	})
	for range 50 {
		done := make(chan struct{})
		go func() { // the stack of a new goroutine is small, so that deeper must grow it
			defer close(done)
			deeper(100)
		}()
		<-done
	}
	wg.Wait()
}

// If a traced root is garbage collected without having been stopped, a warning is logged with the
// line that created the root. The collection does not stop the root. Nothing is logged for a root
// that was stopped.
func TestTrace_LogsRootCollectedWithoutStop(t *testing.T) {
	c := claim{t, "docs/internals/core.md#lost-roots"}
	reports := make(lines, 10)
	logger := slog.New(slog.NewTextHandler(reports, nil))
	lose := func(name string) (root, kid <-chan struct{}, end func(), site string) {
		_, file, line, _ := runtime.Caller(0)
		s := ctxshutdown.New(context.Background(), ctxshutdown.WithName(name), ctxshutdown.WithTrace(), ctxshutdown.WithLogger(logger))
		return s.Done(), child(s).Done(), func() { s.Shutdown() }, fmt.Sprintf("site=%s:%d", filepath.Base(file), line+1)
	}

	_, kid, shutdown, _ := lose("governed")
	shutdown()
	c.awaitClosed("the child of a root that was shut down", kid)
	root, kid, _, site := lose("lost")
	got := reports.await(c)
	for _, want := range []string{"root scope garbage collected", "scope=lost", site} {
		c.isTrue(fmt.Sprintf("the report says %s: %s", want, got), strings.Contains(got, want))
	}
	c.isTrue("the collected root and its child are not stopped", !testkit.IsClosed(root) && !testkit.IsClosed(kid))
	c.equal("number of further reports", len(reports), 0)
}

// lines is a writer for a logger. It sends each line that the logger writes to the channel.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// await runs the garbage collector until a line arrives, and returns the line.
func (l lines) await(c claim) string {
	for range 100 {
		runtime.GC()
		select {
		case line := <-l:
			return line
		// Do not wait for long: the cleanup, which writes the line, may need another garbage
		// collection.
		case <-time.After(100 * time.Millisecond):
		}
	}
	c.Fatalf("%s: no line was logged", c.source)
	return ""
}

// If an untraced root is garbage collected without having been stopped, nothing is logged. The
// collection does not stop the root.
func TestTrace_LogsNothingIfUntracedRootIsCollected(t *testing.T) {
	t.Setenv("CTXSHUTDOWN_TRACE", "")
	c := claim{t, "docs/internals/core.md#lost-roots"}
	reports := make(lines, 10)
	lost, done := func() (weak.Pointer[ctxshutdown.Swansong], <-chan struct{}) {
		s := ctxshutdown.New(context.Background(), ctxshutdown.WithLogger(slog.New(slog.NewTextHandler(reports, nil))))
		return weak.Make(s), s.Done()
	}()
	c.isTrue("the root is collected", isCollected(lost))
	c.isTrue("the root is not stopped", !testkit.IsClosed(done))
	c.equal("number of reports", len(reports), 0)
}
