package eventloop_test

import (
	"context"
	"runtime"
	"testing"
	"time"
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

// grows returns by how much the heap has grown when f has run n times.
func grows(n int, f func()) int64 {
	f()
	before, _ := heap()
	for range n {
		f()
	}
	after, _ := heap()
	return int64(after) - int64(before)
}

// An offload that is over leaves nothing with the loop, or with the context that it was under.
func TestOffloadsLeaveNothing(t *testing.T) {
	work, done := func(context.Context) (int, error) { return 1, nil }, func(int, error) {}
	for name, offload := range map[string]func(l *eventloop.Loop, p *eventloop.Pool) error{
		"Offload": func(l *eventloop.Loop, p *eventloop.Pool) error { return eventloop.Offload(l, p, work, done) },
		"OffloadTimeout": func(l *eventloop.Loop, p *eventloop.Pool) error {
			return eventloop.OffloadTimeout(l, p, time.Hour, work, done)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, p := started(t), pool(t, 2)
			left := grows(20, func() {
				for range 1_000 {
					is(t, "it", offload(l, p), nil)
				}
				is(t, "WaitIdle", p.WaitIdle(context.Background()), nil)
				is(t, "Quiesce", l.Quiesce(tooLong), nil)
			})
			if left > 1<<20 { // 50 bytes each
				t.Errorf("%d bytes are left of 20,000", left)
			}
		})
	}
}

// Nor does a Quiesce that has timed out, while the loop is busy and answers nobody.
func TestTimedOutQuiescesLeaveNothing(t *testing.T) {
	l := started(t)
	free := busy(t, l)
	defer free()
	left := grows(20_000, func() { is(t, "Quiesce", l.Quiesce(0), context.DeadlineExceeded) })
	if left > 1<<20 {
		t.Errorf("%d bytes are left of 20,000", left)
	}
}
