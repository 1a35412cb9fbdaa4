package packed_test

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swansong-go/swansong/internal/packed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noOwner is the owner of a node whose completion does not matter to the test.
type noOwner struct{}

func (noOwner) OnComplete() {}

func newNode(parent *packed.Node) *packed.Node {
	n := &packed.Node{}
	n.Init(parent, noOwner{}, false)
	return n
}

// linked returns the number of descendants of n that are in the list of children of their parent.
func linked(n *packed.Node) int {
	count := -1
	n.Walk(func(packed.Owner, int) { count++ })
	return count
}

// guards returns the number of guards in the subtree of n.
func guards(n *packed.Node) int {
	total := 0
	n.Walk(func(_ packed.Owner, guards int) { total += guards })
	return total
}

// panicOf returns the text of the panic of f, or "" if f returns.
func panicOf(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

// check stops the test if got and want differ. It must be called on the goroutine of the test.
func check(t *testing.T, what string, got, want any) {
	t.Helper()
	checkNodes(t, what, got, want, nil)
}

// checkNodes fails the test if got and want differ, as check does, and then also prints the words
// of the nodes.
func checkNodes(t *testing.T, what string, got, want any, nodes map[string]*packed.Node) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		packed.FreezeTransitions()
		t.Fatalf("%s (-want +got):\n%s\n%s", what, diff, dump(nodes))
	}
}

// dump returns the word of each node and the last transitions.
func dump(nodes map[string]*packed.Node) string { return words(nodes) + packed.TraceOf(nodes) }

// words returns the word of each node, sorted by name.
func words(nodes map[string]*packed.Node) string {
	var b strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		return cmp.Or(len(a)-len(b), strings.Compare(a, b))
	}) {
		fmt.Fprintf(&b, "%-8s %v\n", name, nodes[name])
	}
	return b.String()
}

// watch ends the test program if the test is still running after limit. Tests call it if a fault of
// the protocol would make them wait forever. nodes is called after limit has passed.
func watch(t *testing.T, limit time.Duration, nodes func() map[string]*packed.Node) {
	timer := time.AfterFunc(limit, func() {
		crash(fmt.Sprintf("%s is still running after %v", t.Name(), limit), nodes())
	})
	t.Cleanup(func() { timer.Stop() })
}

// crash ends the test program. It prints the reason, the words of the nodes, the last transitions
// and the stacks of all goroutines.
func crash(reason string, nodes map[string]*packed.Node) {
	packed.FreezeTransitions()
	debug.SetTraceback("all")
	panic(reason + ": a goroutine waits for a channel or a lock, or repeats an operation forever\n" + dump(nodes))
}

// rounds returns n, or a fiftieth in a build that records transitions: there, operations take much
// longer, but rare interleavings are frequent.
func rounds(n int) int {
	if packed.Traced {
		return n / 50
	}
	return n
}

// A barrier lets goroutines start at the same time, each on a processor of its own. With a channel,
// they would all become runnable on one processor, and the first could finish before the second
// starts.
type barrier struct{ n atomic.Int32 }

func (b *barrier) wait(all int32) {
	for b.n.Add(1); b.n.Load() < all; {
		runtime.Gosched()
	}
}

// both runs f and g at the same time and returns when both have returned.
func both(f, g func()) {
	var start barrier
	var wg sync.WaitGroup
	for _, h := range []func(){f, g} {
		wg.Go(func() {
			start.wait(2)
			h()
		})
	}
	wg.Wait()
}

var spinner atomic.Int64

// spin passes a little time: a few nanoseconds for each n.
func spin(n int) {
	for range n {
		spinner.Load()
	}
}
