package eventloop_test

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

func nop() {}

// Posting a callback that captures nothing does not allocate, even if the loop is slower than its
// producers.
func TestPost_DoesNotAllocate(t *testing.T) {
	l := startLoop(t)
	if n := testing.AllocsPerRun(20_000, func() { l.Post(nop) }); n != 0 {
		t.Errorf("Post made %v allocations", n)
	}
}

func heap() (live, total uint64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.TotalAlloc
}

// A queue takes little more than a pointer per callback, is never copied, and is freed when it is
// empty.
func TestLoop_FreesMemoryOfLongQueueOnceItIsEmpty(t *testing.T) {
	const n = 2_000_000
	l := startLoop(t)
	free := block(t, l)
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

// The values that a callback has captured can be garbage-collected once the callback has returned,
// even while the next one is running.
func TestLoop_FreesMemoryOfCallbackOnceItHasReturned(t *testing.T) {
	l := startLoop(t)
	free := block(t, l)
	gone := postBig(l)
	next, release := make(chan struct{}), make(chan struct{})
	l.Post(func() { close(next); <-release })
	free()
	receive(t, "the next callback", next)
	defer close(release)
	for range 10 {
		if runtime.GC(); gone.Value() == nil {
			return
		}
	}
	t.Error("the loop keeps what a callback has captured")
}

// postBig posts a callback that captures the only reference to a large value.
func postBig(l *eventloop.Loop) weak.Pointer[[1 << 10]int] {
	big := new([1 << 10]int)
	l.Post(func() { big[0]++ })
	return weak.Make(big)
}

// The values that a job has captured can be garbage-collected once the job has returned, even while
// the next one is running.
func TestPool_FreesMemoryOfJobs(t *testing.T) {
	p := newPool(t, 1)
	gone := submitBig(p)
	next, release := make(chan struct{}), make(chan struct{})
	p.Submit(func() { close(next); <-release })
	receive(t, "the next job", next)
	defer close(release)
	for range 10 {
		if runtime.GC(); gone.Value() == nil {
			return
		}
	}
	t.Error("the pool keeps what a job has captured")
}

// submitBig submits a job that captures the only reference to a large value.
func submitBig(p *eventloop.Pool) weak.Pointer[[1 << 10]int] {
	big := new([1 << 10]int)
	p.Submit(func() { big[0]++ })
	return weak.Make(big)
}

// Submitting a job that captures nothing does not allocate, even if the workers are slower than the
// submitters.
func TestPool_SubmitDoesNotAllocate(t *testing.T) {
	p := newPool(t, 1)
	if n := testing.AllocsPerRun(20_000, func() { p.Submit(nop) }); n != 0 {
		t.Errorf("Submit made %v allocations", n)
	}
}

// A queue of many jobs takes little more than their functions, is never copied, and is freed when
// it is empty.
func TestPool_FreesMemoryOfLongQueue(t *testing.T) {
	const n = 1_000_000
	p := newPool(t, 1)
	release := make(chan struct{})
	p.Submit(func() { <-release })
	before, totalBefore := heap()
	for range n {
		p.Submit(nop)
	}
	full, total := heap()
	close(release)
	testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(context.Background()), nil)
	after, _ := heap()
	if bytes := float64(full-before) / n; bytes > 17 {
		t.Errorf("%.1f bytes for each job in the queue", bytes)
	}
	if bytes := float64(total-totalBefore) / n; bytes > 17 {
		t.Errorf("%.1f bytes allocated for each job: the queue is copied", bytes)
	}
	if left := int64(after) - int64(before); left > 64<<10 {
		t.Errorf("%d bytes are left when the queue is empty", left)
	}
}

// heapGrowth returns how many bytes the heap grows by while f is called n times.
func heapGrowth(n int, f func()) int64 {
	f()
	before, _ := heap()
	for range n {
		f()
	}
	after, _ := heap()
	return int64(after) - int64(before)
}

// A finished offload leaves nothing in the loop or in the context that it used.
func TestOffload_FreesMemoryWhenFinished(t *testing.T) {
	work, done := func(context.Context) (int, error) { return 1, nil }, func(int, error) {}
	for name, offload := range map[string]func(l *eventloop.Loop, p *eventloop.Pool) error{
		"Offload": func(l *eventloop.Loop, p *eventloop.Pool) error { return eventloop.Offload(l, p, work, done) },
		"OffloadTimeout": func(l *eventloop.Loop, p *eventloop.Pool) error {
			return eventloop.OffloadTimeout(l, p, time.Hour, work, done)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, p := startLoop(t), newPool(t, 2)
			left := heapGrowth(20, func() {
				for range 1_000 {
					testkit.ErrorIs(t, "it", offload(l, p), nil)
				}
				testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(context.Background()), nil)
				testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil)
			})
			if left > 1<<20 { // the limit is 50 bytes for each of the 20,000 offloads
				t.Errorf("%d bytes are left after 20,000 offloads", left)
			}
		})
	}
}

// A call of Quiesce that has timed out leaves nothing in the memory of a busy loop.
func TestQuiesce_CallThatTimedOutLeavesNothingInMemory(t *testing.T) {
	l := startLoop(t)
	free := block(t, l)
	defer free()
	left := heapGrowth(20_000, func() { testkit.ErrorIs(t, "Quiesce", l.Quiesce(0), context.DeadlineExceeded) })
	if left > 1<<20 {
		t.Errorf("%d bytes are left after 20,000 calls", left)
	}
}
