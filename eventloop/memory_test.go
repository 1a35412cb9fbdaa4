package eventloop_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/swansong-go/swansong/eventloop"
)

func nop() {}

// A callback that captures nothing costs no allocation, also of a loop that falls behind.
func TestPostDoesNotAllocate(t *testing.T) {
	l := started(t)
	if n := testing.AllocsPerRun(20_000, func() { l.Post(nop) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func heap() (live, total uint64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.TotalAlloc
}

// A queue of any length takes little more than a pointer each, is never copied, which would make it quadratic or spiky, and
// is given back.
func TestLongQueue(t *testing.T) {
	const n = 2_000_000
	l := started(t)
	free := busy(t, l)
	before, totalBefore := heap()
	for range n {
		l.Post(nop)
	}
	full, total := heap()
	free()
	if err := l.Quiesce(tooLong); err != nil {
		t.Fatal(err)
	}
	after, _ := heap()
	if bytes := float64(full-before) / n; bytes > 8.5 {
		t.Errorf("%.1f bytes for each callback in the queue", bytes)
	}
	if bytes := float64(total-totalBefore) / n; bytes > 8.5 {
		t.Errorf("%.1f bytes allocated for each callback: the queue is copied", bytes)
	}
	if left := int64(after) - int64(before); left > 64<<10 {
		t.Errorf("%d bytes are left when the queue is empty", left)
	}
}

// What a callback has captured may go when it has run, also while the loop is busy with the next one.
func TestCallbacksAreCollected(t *testing.T) {
	l := started(t)
	free := busy(t, l)
	gone := postBig(l)
	next, release := make(chan struct{}), make(chan struct{})
	l.Post(func() { close(next); <-release })
	free()
	comes(t, "the next callback", next)
	defer close(release)
	for range 10 {
		if runtime.GC(); gone.Value() == nil {
			return
		}
	}
	t.Error("the loop keeps what a callback has captured")
}

// postBig posts what alone has hold of something.
func postBig(l *eventloop.Loop) weak.Pointer[[1 << 10]int] {
	big := new([1 << 10]int)
	l.Post(func() { big[0]++ })
	return weak.Make(big)
}
