package ctxshutdown_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// What the package does where it differs from the specification on purpose: a test for each difference that core.md
// lists and that shows without interrupts. The rows on 3.2 and on the cost of weak interrupts are about those.

// Specified: dropping the last handle of a root signals stop, and 5.9 cascades it. Here: the garbage collector never
// signals; under trace a lost root is reported with its creation site, one that was stopped is not.
func TestDifference_3_3_And_5_9_ALostRootIsReportedNotStopped(t *testing.T) {
	c := claim{t, "instead of spec 3.3 and 5.9"}
	reports := make(lines, 10)
	logger := slog.New(slog.NewTextHandler(reports, nil))
	lose := func(name string) (root, kid <-chan struct{}, end func(), site string) {
		_, file, line, _ := runtime.Caller(0)
		s := ctxshutdown.New(context.Background(), ctxshutdown.WithName(name), ctxshutdown.WithTrace(), ctxshutdown.WithLogger(logger))
		return s.Done(), child(s).Done(), func() { s.Shutdown() }, fmt.Sprintf("site=%s:%d", filepath.Base(file), line+1)
	}

	_, kid, shutdown, _ := lose("governed")
	shutdown()
	c.ends("the child of a root that was shut down", kid)
	root, kid, _, site := lose("lost")
	got := reports.await(c)
	for _, want := range []string{"root scope lost", "scope=lost", site} {
		c.isTrue(fmt.Sprintf("the report says %s: %s", want, got), strings.Contains(got, want))
	}
	c.isTrue("neither the lost root nor its child is stopped", !closed(root) && !closed(kid))
	c.equal("further reports", len(reports), 0)
}

// lines are what a logger wrote.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// await returns the next line, which only a garbage collection can bring about.
func (l lines) await(c claim) string {
	for range 100 {
		runtime.GC()
		select {
		case line := <-l:
			return line
		case <-time.After(100 * time.Millisecond): // the collection was too early for it
		}
	}
	c.Fatalf("%s: nothing was reported", c.source)
	return ""
}

// Untraced, the loss of a root has no effect at all.
func TestDifference_3_3_AnUntracedRootIsLostInSilence(t *testing.T) {
	t.Setenv("CTXSHUTDOWN_TRACE", "")
	c := claim{t, "instead of spec 3.3"}
	reports := make(lines, 10)
	lost, done := func() (weak.Pointer[ctxshutdown.Swansong], <-chan struct{}) {
		s := ctxshutdown.New(context.Background(), ctxshutdown.WithLogger(slog.New(slog.NewTextHandler(reports, nil))))
		return weak.Make(s), s.Done()
	}()
	c.isTrue("collected", collected(lost))
	c.isTrue("not stopped", !closed(done))
	c.equal("reports", len(reports), 0)
}

// Specified: a child without handles and guards is collected, and its interrupts end by that. Here: the scope may be
// collected, but a channel that it handed out, or a context derived from it, ends when the parent stops and not before.
func TestDifference_5_5_LosingAChildEndsNothing(t *testing.T) {
	c, root := claim{t, "instead of spec 5.5"}, ctxshutdown.New(t.Context())
	lost, done := func() (weak.Pointer[ctxshutdown.Swansong], <-chan struct{}) {
		s := child(root)
		return weak.Make(s), s.Done()
	}()
	kept, interrupt := func() (weak.Pointer[ctxshutdown.Swansong], context.Context) {
		s := child(root)
		return weak.Make(s), context.WithValue(s, key("k"), 1)
	}()
	c.isTrue("a scope of which only the channel is left is collected", collected(lost))
	c.isTrue("a scope that a context derives from is kept", !collected(kept))
	c.isTrue("both run on", !closed(done) && interrupt.Err() == nil)
	root.Shutdown()
	c.ends("the channel of a collected scope", done)
	c.ends("the context of a lost scope", interrupt.Done())
}

// Specified: the guard that takes a word from zero tells the ancestors, so a second one returns before they know. Here:
// every ancestor knows of every guard that has been returned.
func TestDifference_8_CountingIsExact(t *testing.T) {
	c := claim{t, "instead of spec 8"}
	tree := func() (root, leaf *ctxshutdown.Swansong) {
		root = ctxshutdown.New(context.Background())
		leaf = root
		for range 4 {
			leaf = child(leaf)
		}
		return root, leaf
	}
	t.Run("of two guards on a leaf before the stop", func(t *testing.T) {
		for range 10_000 {
			root, leaf := tree()
			var racing sync.WaitGroup
			racing.Go(func() { leaf.Guard().Release() })
			g := leaf.Guard()
			done := root.Shutdown()
			if resolved(done) || root.State() == ctxshutdown.Complete {
				t.Fatalf("%s: complete while a guard is held", c.source)
			}
			g.Release()
			racing.Wait()
			c.drains(done)
		}
	})
	t.Run("of guards that come and go after the stop", func(t *testing.T) {
		root, leaf := tree()
		root.Shutdown()
		var racing sync.WaitGroup
		for range 8 {
			racing.Go(func() {
				for range 5_000 {
					g := leaf.Guard()
					if root.State() == ctxshutdown.Complete || resolved(root.Completion()) {
						t.Errorf("%s: complete while a guard is held", c.source)
						g.Release()
						return
					}
					g.Release()
					runtime.Gosched()
				}
			})
		}
		racing.Wait()
		c.sees(root, ctxshutdown.Complete, 0)
	})
}
