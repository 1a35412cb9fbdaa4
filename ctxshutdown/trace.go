package ctxshutdown

// Scopes: tracing, which is a debugging mode.
//
// A traced scope keeps a record of each guard that is held, with the line and the time of the
// acquisition. The records are used by GuardReport, and for warnings about late releases. Two more
// features are active in traced scopes only: pprof labels of goroutines, and warnings about roots
// that are collected without a stop. In an untraced scope, tracing costs only a check for a nil
// pointer at each guard operation.
//
// A guard is counted before its record is added, and its record is removed before the guard is
// subtracted from the count. So each record belongs to a guard that is counted, and a scope that
// is complete has no records. No decision about a drain is made from the records.
//
// The lock of a scopeTrace is held for a few loads and stores, for the copy that a report makes,
// while isInLibrary looks up a function for the first time, and while add walks the stack above
// another package of this module. No function of the user and no logger is called under the lock.

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/stacks"
)

// scopeTrace is the tracing state of one scope: its settings and the list of its guards.
type scopeTrace struct {
	settings // if traced is false, no guards are recorded; descendants still inherit the logger
	start    time.Time

	stopped atomic.Bool // the scope was told to stop; see watchForLoss

	mu      sync.Mutex
	held    *guardRecord     // the first of a list of the guards that are held
	library map[uintptr]bool // the results of isInLibrary, by return address
}

// guardRecord is the trace of one guard: where and when it was acquired.
type guardRecord struct {
	site stacks.Site
	name fmt.Stringer  // if not nil, reports show this name instead of the site
	at   time.Duration // when the guard was acquired: time since scopeTrace.start

	next, prev *guardRecord // neighbours in the list scopeTrace.held
}

// String returns what reports show for the guard: its name or, if it has none, its site.
func (r *guardRecord) String() string {
	if r.name != nil {
		return r.name.String()
	}
	return r.site.String()
}

// packagePath is the beginning of the names of this package's functions in a stack.
const packagePath = stacks.ModulePath + "ctxshutdown."

// add records a guard that is being acquired. pc is the return address of the exported function
// that the user has called, as from runtime.Callers. If another function of this module has called
// that function, add looks for the user's call among the frames above. It returns nil if guards are
// not traced.
//
// Walking the stack takes most of the time of a traced guard. So the caller of add finds pc: add
// itself would have to walk one frame more.
func (t *scopeTrace) add(pc uintptr) *guardRecord {
	if !t.traced {
		return nil
	}
	r := &guardRecord{site: stacks.Site{pc}, at: time.Since(t.start)}
	t.mu.Lock()
	if t.isInLibrary(pc) {
		runtime.Callers(3, r.site[:]) // skips the frames of Callers, add and the caller of add
	}
	if r.next = t.held; r.next != nil {
		r.next.prev = r
	}
	t.held = r
	t.mu.Unlock()
	t.callHook(ctxkey.AfterAcquire)
	return r
}

// isInLibrary reports whether the return address pc is in one of the packages of this module that
// acquire guards for the user, such as httpdrain. If pc is 0, isInLibrary returns false. The caller
// holds t.mu.
func (t *scopeTrace) isInLibrary(pc uintptr) bool {
	is, known := t.library[pc]
	if !known {
		f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
		is = stacks.IsLibrary(f.Function)
		if t.library == nil {
			t.library = map[uintptr]bool{}
		}
		t.library[pc] = is
	}
	return is
}

// remove removes from the list the record of a guard that is being released. A copied Guard can be
// released twice; if the record is no longer in the list, remove does nothing.
func (t *scopeTrace) remove(r *guardRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.prev != nil {
		r.prev.next = r.next
	} else if r == t.held {
		t.held = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
}

// snapshot returns a copy of the records of all guards held, of which there are about n. Reports
// are made from the copy and not under the lock, because acquisitions and releases wait for the
// lock.
func (t *scopeTrace) snapshot(n int) []guardRecord {
	all := make([]guardRecord, 0, n)
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := t.held; r != nil; r = r.next {
		all = append(all, *r)
	}
	return all
}

// callHook calls the hook of a test, if there is one, at a point of a guard operation.
func (t *scopeTrace) callHook(m ctxkey.GuardEvent) {
	if t.hook != nil {
		t.hook(m)
	}
}

// logLateRelease logs the release of a guard of s if it came after Force, or after a Wait gave up.
// The guard is no longer counted, so a logger that blocks or panics does not delay the drain.
func (t *scopeTrace) logLateRelease(s *Swansong, r *guardRecord) {
	if t.logger == nil {
		return
	}
	if since := t.start.Add(r.at); s.isLate(since) {
		t.logger.Warn("guard released late", "scope", s.path(), "site", r.String(), "held", time.Since(since))
	}
}

// isLate reports whether the release of a guard that was acquired at the given time is late: the
// scope or an ancestor was forced, or a Wait on one of them gave up after that time.
func (s *Swansong) isLate(acquired time.Time) bool {
	for up := s; up != nil; up = up.parentScope() {
		if at := up.gaveUpAt.Load(); at != nil && !acquired.After(*at) {
			return true
		}
	}
	return s.forceCause() != nil
}

// watchForLoss makes a traced root with a logger log a warning if it is garbage collected without
// having been stopped. The collection does not stop the scope: see
// docs/internals/core.md#lost-roots.
func (s *Swansong) watchForLoss() {
	if s.trace == nil || !s.trace.traced || s.trace.logger == nil {
		return
	}
	trace, path, site := s.trace, s.path(), stacks.Site{}
	// The 3 frames that are skipped belong to Callers, to watchForLoss, and to New or WithCancel.
	runtime.Callers(3, site[:])
	context.AfterFunc(s.derive().ctx, func() { trace.stopped.Store(true) })
	// The cleanup must not refer to s, or s is never collected. The runtime calls cleanups outside
	// of every synctest bubble. So this cleanup must not use a channel that was made in a bubble,
	// such as Done.
	runtime.AddCleanup(s, func(site stacks.Site) {
		if !trace.stopped.Load() {
			trace.logger.Warn("root scope garbage collected without Shutdown", "scope", path, "site", site.String())
		}
	}, site)
}

// labelKey is the key of the pprof label of goroutines that Go starts in a traced scope. Its value
// is the path of the scope.
const labelKey = "swansong"

// label sets the pprof label of the calling goroutine, which holds g, if g is traced. It returns
// the context for the goroutine. The context carries the label as well, because [pprof.Do] restores
// the labels of the context that it is given, not the labels that the goroutine had before.
func (g *Guard) label(ctx context.Context) context.Context {
	if g == nil || g.trace == nil {
		return ctx
	}
	return (*tracer)(g.scope).Label(ctx)
}

// tracer returns the value of s for the key ctxkey.Tracing: a *tracer, or nil if s is not traced.
func (s *Swansong) tracer() any {
	if s.trace == nil || !s.trace.traced {
		return nil
	}
	return (*tracer)(s)
}

// tracer is a traced scope as other packages of this module see it.
type tracer Swansong

var _ ctxkey.Tracer = (*tracer)(nil)

// Name sets the name of a guard in reports. It takes the lock, because a report can copy the record
// at the same time.
func (t *tracer) Name(guard any, name fmt.Stringer) {
	t.trace.mu.Lock()
	defer t.trace.mu.Unlock()
	guard.(*Guard).trace.name = name
}

// Caller returns the place from which the user called into this module. The text of the place is
// resolved only when a report asks for it.
func (t *tracer) Caller() fmt.Stringer {
	at := new(stacks.Site)
	runtime.Callers(2, at[:]) // skips the frames of Callers and Caller
	return at
}

// Label adds the label to those in ctx and sets them all for the calling goroutine. Goroutines that
// this one starts inherit the labels, so a report shows their stacks, too.
func (t *tracer) Label(ctx context.Context) context.Context {
	ctx = pprof.WithLabels(ctx, pprof.Labels(labelKey, (*Swansong)(t).path()))
	pprof.SetGoroutineLabels(ctx)
	return ctx
}
