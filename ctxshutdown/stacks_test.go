package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// labels returns the pprof labels of ctx.
func labels(ctx context.Context) map[string]string {
	got := map[string]string{}
	pprof.ForLabels(ctx, func(key, value string) bool {
		got[key] = value
		return true
	})
	return got
}

// profiled returns the pprof labels of all goroutines that run the function straggle. It finds them
// in a goroutine profile.
func profiled(t *testing.T) (labels []string) {
	t.Helper()
	var b strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	for group := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(group, "ctxshutdown_test.straggle") {
			_, l, _ := strings.Cut(group, "\n# labels: ")
			l, _, _ = strings.Cut(l, "\n")
			labels = append(labels, l)
		}
	}
	return labels
}

func TestGo_SetsPprofLabelIfTraced(t *testing.T) {
	for name, start := range map[string]func(s *ctxshutdown.Swansong, f func(context.Context)) bool{
		"Swansong.Go": (*ctxshutdown.Swansong).Go,
		"Go":          func(s *ctxshutdown.Swansong, f func(context.Context)) bool { return ctxshutdown.Go(s, f) },
		"Call": func(s *ctxshutdown.Swansong, f func(context.Context)) bool {
			go ctxshutdown.Call(s, func(ctx context.Context) (any, error) { f(ctx); return nil, nil })
			return true
		},
	} {
		for _, traced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, traced %v", name, traced), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					opts := []ctxshutdown.Option{ctxshutdown.WithName("app")}
					want, wantLabels, wantProfile := 0, map[string]string{"request": "r1"}, []string{""}
					if traced {
						opts = append(opts, ctxshutdown.WithTrace())
						want, wantLabels["swansong"] = 1, `app/jo\"b` // the escaped name, as in reports
						wantProfile = []string{`{"request":"r1", "swansong":"app/jo\\\"b"}`}
					}
					ctx := pprof.WithLabels(context.Background(), pprof.Labels("request", "r1"))
					s := child(ctxshutdown.New(ctx, opts...), ctxshutdown.WithName(`jo"b`))
					got := make(chan map[string]string, 1)
					if !start(s, func(ctx context.Context) {
						got <- labels(ctx)
						// When pprof.Do returns, it removes the labels that it has added. The label
						// of the scope must remain.
						pprof.Do(ctx, pprof.Labels("other", "x"), func(context.Context) {})
						straggle(ctx)
					}) {
						t.Fatal("the goroutine was not started")
					}
					testkit.Equal(t, "labels of the context", <-got, wantLabels)
					synctest.Wait()
					if diff := cmp.Diff(wantProfile, profiled(t)); traced && diff != "" {
						t.Errorf("labels in the profile (-want +got):\n%s", diff)
					}
					stacks := strings.Count(drainError(t, s).Stacks, "ctxshutdown_test.straggle\n")
					if stacks != want {
						t.Errorf("%d stacks of straggle, want %d", stacks, want)
					}
					s.Force(nil)
				})
			})
		}
	}
}

// drainError calls Wait for s, with a time-out, and returns the DrainError. It does not stop s.
func drainError(t *testing.T, s *ctxshutdown.Swansong) *ctxshutdown.DrainError {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var drain *ctxshutdown.DrainError
	if err := s.Completion().Wait(ctx); !errors.As(err, &drain) {
		t.Fatalf("Wait returned %v, want a DrainError", err)
	}
	return drain
}

func TestDrainError_HasStacksOfSubtree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
		here := child(root, ctxshutdown.WithName("here"))
		below := child(here, ctxshutdown.WithName("below"))
		beside := child(root, ctxshutdown.WithName(`beside`))
		group := ctxshutdown.NewGroup(here, ctxshutdown.WithName("group"))
		for _, s := range []*ctxshutdown.Swansong{root, here, below, below, beside} {
			s.Go(straggle)
		}
		group.Go(func(ctx context.Context) error { straggle(ctx); return nil })
		// These two goroutines must not be listed. The first has the text of the label in the value
		// of another label. The second has no label.
		go pprof.Do(context.Background(), pprof.Labels("a", `", "swansong":"app/here`), func(context.Context) { straggle(root) })
		go straggle(root)
		synctest.Wait()

		heads := func(stacks string) (heads []string) {
			for line := range strings.Lines(stacks) {
				if !strings.HasPrefix(line, "\t") {
					heads = append(heads, strings.TrimSpace(line))
				}
			}
			return heads
		}
		err := drainError(t, here)
		got := map[string]int{}
		for _, head := range heads(err.Stacks) {
			got[head]++
		}
		want := map[string]int{"1 goroutine of app/here:": 1, "2 goroutines of app/here/below:": 1, "1 goroutine of app/here/group:": 1}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("scopes of the stacks (-want +got):\n%s\n%s", diff, err.Stacks)
		}
		if strings.Contains(err.Stacks, "swansong/ctxshutdown.") {
			t.Errorf("the stacks have frames of package ctxshutdown:\n%s", err.Stacks)
		}
		if strings.Contains(err.Error(), "straggle") || strings.Contains(err.Error(), "\n") {
			t.Errorf("the message of the error contains stacks: %q", err)
		}
		root.Force(nil)
		<-root.Completion().Done()
		group.Wait()
	})
}

func TestDrainError_LimitsStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := ctxshutdown.New(context.Background(), ctxshutdown.WithTrace())
		for i := range 60 {
			child(root, ctxshutdown.WithName(fmt.Sprintf("conn-%d", i))).Go(straggle)
		}
		synctest.Wait()
		stacks := drainError(t, root).Stacks
		if n := strings.Count(stacks, "1 goroutine of conn-"); n != 50 || !strings.HasSuffix(stacks, "\nand 10 more stacks\n") {
			t.Errorf("%d stacks of 60, want 50 and the number of the others; got\n%s", n, stacks)
		}
		root.Force(nil)
		<-root.Completion().Done()
	})
}

// A report lists 100,000 guards exactly, while another goroutine acquires and releases further
// guards.
func TestReport_CountsManyGuardsUnderConcurrency(t *testing.T) {
	const scopes, each = 1_000, 100
	for _, traced := range []bool{false, true} {
		t.Run(fmt.Sprintf("traced %v", traced), func(t *testing.T) {
			root := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
			var opts []ctxshutdown.Option
			if traced {
				opts = append(opts, ctxshutdown.WithTrace())
			}
			var guards []*ctxshutdown.Guard
			want := map[string]int{}
			for i := range scopes {
				name := fmt.Sprintf("s%d", i)
				s := child(root, append(opts, ctxshutdown.WithName(name))...)
				for range each {
					guards = append(guards, s.Guard())
				}
				want["app/"+name] = each
			}
			stop, done := make(chan struct{}), make(chan struct{})
			go func() { // the report may contain guards of this goroutine, or none
				defer close(done)
				for !testkit.IsClosed(stop) {
					child(root, opts...).Guard().Release()
				}
			}()
			r := root.GuardReport()
			close(stop)
			<-done
			got := map[string]int{}
			for _, e := range r.Entries() {
				if e.Path != "app" {
					got[e.Path] += e.Count
				}
			}
			testkit.Equal(t, "guards by scope", got, want)
			if s := r.String(); strings.Contains(s, "\n") || len(s) > 2000 {
				t.Errorf("String has %d bytes: %s", len(s), s)
			}
			for _, g := range guards {
				g.Release()
			}
			if s := root.GuardReport().String(); s != "no guards" {
				t.Errorf("all guards are released, and the report is %s", s)
			}
			root.Shutdown()
		})
	}
}
