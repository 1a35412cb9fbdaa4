package ctxshutdown_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestTrace_OfASubtreeOnly(t *testing.T) {
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
	if diff := cmp.Diff(want, sites); diff != "" {
		t.Errorf("who has sites (-want +got):\n%s", diff)
	}
	if n := root.GuardReport().Count(); n != 6 {
		t.Errorf("%d guards reported, want 6", n)
	}
}

func TestTrace_ByTheEnvironment(t *testing.T) {
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
			if diff := cmp.Diff([]bool{want, want, want, false, false}, got); diff != "" {
				t.Errorf("root, child, root by WithCancel, root made before, a child of that (-want +got):\n%s", diff)
			}
		})
	}
}

// records are the records that a logger was given.
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

// giveUp waits for a second of a bubble.
func giveUp(s *ctxshutdown.Swansong) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Completion().Wait(ctx)
}

func TestTrace_LateReleases(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(root, s *ctxshutdown.Swansong)
		late bool
	}{
		{"running", func(_, _ *ctxshutdown.Swansong) {}, false},
		{"stopped", func(root, _ *ctxshutdown.Swansong) { root.Shutdown() }, false},
		{"forced", func(_, s *ctxshutdown.Swansong) { s.Force(nil) }, true},
		{"forced above", func(root, _ *ctxshutdown.Swansong) { root.Force(nil) }, true},
		{"given up", func(_, s *ctxshutdown.Swansong) { s.Shutdown(); giveUp(s) }, true},
		{"given up above", func(root, _ *ctxshutdown.Swansong) { root.Shutdown(); giveUp(root) }, true},
		{"given up while running", func(root, _ *ctxshutdown.Swansong) { giveUp(root) }, false},
		{"given up beside", func(root, _ *ctxshutdown.Swansong) { giveUp(hold(root, "beside", 1)) }, false},
		{"given up by a mistake", func(root, s *ctxshutdown.Swansong) { root.Shutdown().Wait(s) }, false},
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
					if diff := cmp.Diff(want, r.take()); diff != "" {
						t.Errorf("logged (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// The record of a released guard serves the next one. The report tells of guards that are held, by their own sites.
func TestTrace_RecordsServeAgain(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithTrace())
	if n := testing.AllocsPerRun(1000, func() { s.Guard().Release() }); n != 0 {
		t.Errorf("%v allocations for a traced guard", n)
	}
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
		if diff := cmp.Diff(map[string]int{earlySite: 50, lateSite: 50}, got); diff != "" {
			t.Errorf("guards by site (-want +got):\n%s", diff)
		}
		for _, g := range append(early, late...) {
			g.Release()
		}
		if got := s.GuardReport().Entries(); len(got) != 0 {
			t.Errorf("still held: %v", got)
		}
	}
}

// The copy of a guard takes no record along that is another guard's, or nobody's.
func TestTrace_ACopyIsReleased(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithTrace())
	var site string
	for range 2 {
		s.Guard()
		site = lineAbove()
	}
	g := s.Guard()
	c := new(ctxshutdown.Guard)
	reflect.ValueOf(c).Elem().Set(reflect.ValueOf(g).Elem()) // as vet would not let us
	g.Release()
	c.Release()
	var got []string
	for _, e := range s.GuardReport().Entries() {
		got = append(got, fmt.Sprint(e.Site, " ×", e.Count))
	}
	if diff := cmp.Diff([]string{site + " ×2"}, got); diff != "" {
		t.Errorf("still held (-want +got):\n%s", diff)
	}
}

// Many at a time do not mistake each other's records for their own.
func TestTrace_LateReleasesOfMany(t *testing.T) {
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
	if diff := cmp.Diff(map[string]int{sites[0]: 2 * each, sites[1]: 2 * each}, got); diff != "" {
		t.Errorf("late releases by site (-want +got):\n%s", diff)
	}
}

// A guard counts no more when its late release is told of: what the logger does delays nobody.
func TestTrace_TheLoggerIsToldAfterTheRelease(t *testing.T) {
	var s *ctxshutdown.Swansong
	told := false
	logger := slog.New(slog.NewTextHandler(lateWriter(func() {
		told = true
		if s.State() != ctxshutdown.Complete {
			t.Errorf("%v while a late release is told of", s.State())
		}
		panic("a logger that panics")
	}), nil))
	s = ctxshutdown.New(t.Context(), ctxshutdown.WithTrace(), ctxshutdown.WithLogger(logger))
	g := s.Guard()
	s.Force(nil)
	if got := panicOf(g.Release); got != "a logger that panics" || !told {
		t.Errorf("told %v, panic %q", told, got)
	}
	if s.GuardCount() != 0 || s.GuardReport().Count() != 0 {
		t.Errorf("%d guards, %v", s.GuardCount(), s.GuardReport())
	}
}

type lateWriter func()

func (f lateWriter) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// What a WithCancel without a parent, and a Group without one, lose, is lost by their caller.
func TestTrace_ALostRootByOtherMeans(t *testing.T) {
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
			c, reports := claim{t, "trace"}, make(lines, 10)
			site := lose(ctxshutdown.WithTrace(), ctxshutdown.WithName("lost"), ctxshutdown.WithLogger(slog.New(slog.NewTextHandler(reports, nil))))
			want := fmt.Sprintf(`^time=\S+ level=WARN msg="root scope lost without Shutdown" scope=lost site=%s\n$`, regexp.QuoteMeta(site))
			got := reports.await(c)
			c.isTrue(fmt.Sprintf("%q matches %s", got, want), regexp.MustCompile(want).MatchString(got))
		})
	}
}

func TestTrace_NothingIsLoggedByDefault(t *testing.T) {
	reports := make(lines, 100)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(reports, nil)))
	for _, opts := range [][]ctxshutdown.Option{nil, {ctxshutdown.WithTrace()}, {ctxshutdown.WithTrace(), ctxshutdown.WithLogger(nil)}} {
		func() {
			ctxshutdown.New(context.Background(), opts...).Completion() // lost
			s := ctxshutdown.New(context.Background(), opts...)
			g := s.Guard()
			s.Force(nil)
			g.Release() // late
		}()
		runtime.GC()
		runtime.GC()
	}
	// One that may be told of, collected after all that may not.
	ctxshutdown.New(context.Background(), ctxshutdown.WithTrace(), ctxshutdown.WithName("told"), ctxshutdown.WithLogger(slog.Default()))
	if got := reports.await(claim{t, "semantic 12"}); !strings.Contains(got, "scope=told") || len(reports) > 0 {
		t.Errorf("logged without a logger: %s", got)
	}
}

// stacksAtInit are all goroutines when the package had been initialized, and nothing else had happened.
var stacksAtInit = func() string {
	stacks := make([]byte, 1<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}()

func TestImport_StartsNothing(t *testing.T) {
	for _, by := range []string{"created by github.com/swansong-go/swansong/ctxshutdown.", "created by github.com/swansong-go/swansong/internal/"} {
		if strings.Contains(stacksAtInit, by) {
			t.Errorf("a goroutine runs after the import:\n%s", stacksAtInit)
		}
	}
}

// Signals and HTTP belong to packages that a program imports when it wants them.
func TestImport_OfLittle(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, dep := range deps {
		switch dep {
		case "net/http", "os/signal", "os/exec", "expvar", "flag", "testing", "crypto/tls", "log/syslog":
			t.Errorf("the package imports %s", dep)
		}
		if first, _, _ := strings.Cut(dep, "/"); strings.Contains(first, ".") && !strings.HasPrefix(dep, "github.com/swansong-go/swansong/") {
			t.Errorf("the package imports %s, which is not of the standard library", dep)
		}
	}
	if len(deps) < 10 {
		t.Errorf("go list knows only %v", deps)
	}
}

// The site is right wherever the stack is, and wherever it moves meanwhile.
func TestTrace_SitesOnMovingStacks(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithTrace())
	var site string
	var deeper func(n int) // each call needs more stack, which is moved to make room
	deeper = func(n int) {
		var room [512]byte
		room[n%len(room)] = 1
		g := s.Guard()
		site = lineAbove()
		defer g.Release()
		if n > 0 {
			deeper(n - int(room[n%len(room)]))
		} else if r := s.GuardReport(); len(r.Entries()) != 1 || r.Entries()[0].Site != site {
			t.Errorf("%v, want all at %s", r, site)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { // shrinks stacks
		for range 10 {
			runtime.GC()
		}
	})
	for range 50 {
		done := make(chan struct{})
		go func() { // on a small stack
			defer close(done)
			deeper(100)
		}()
		<-done
	}
	wg.Wait()
}
