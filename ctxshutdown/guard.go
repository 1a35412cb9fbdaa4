package ctxshutdown

// Scopes: guards.
//
// Acquiring a guard is one atomic addition to the counter of its scope and releasing it one
// subtraction, at any depth: the ancestors of a running scope are not told about its guards.
//
//	Guard       counts
//	TryGuard    counts, and then checks that the stop was not signalled before
//	Acquire     checks the context, counts, and checks the context again
//
// A refusal releases the guard that was counted. Traced scopes take the same steps, and also record
// the guard and call the hook of a test.

import (
	"context"
	"runtime"

	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/packed"
)

// A Guard stands for a piece of work that must finish. Until it is released, its scope and every
// ancestor of the scope are not complete. A guard that is never released prevents its scope from
// completing for ever, and every report lists it. The zero Guard counts as released.
//
// Acquiring and releasing a guard does not allocate if the guard does not escape to the heap. (A
// guard escapes if it is acquired in a function literal that the compiler inlines; go build
// -gcflags=-m shows it.) A Guard must not be copied, and its methods must not be called
// concurrently with its Release.
type Guard struct {
	_ noCopy
	guardState
}

// guardState is the content of a Guard. The functions that acquire a guard return a guardState by
// value. The exported functions only put it into a Guard. So they are small enough to be inlined,
// and the Guard can stay on the stack of the caller. See TestGuard_DoesNotAllocate.
type guardState struct {
	scope *Swansong    // nil if the guard has been released
	trace *guardRecord // nil if the scope is not traced
	// count is the counter in which the guard was counted. The field trace separates it from the
	// field scope on purpose: Release clears scope and count, and one wide store to both takes
	// longer than two stores.
	count *packed.Counter
}

// Guard returns a new guard of the scope. It also counts after the stop: such a late guard delays
// every completion that has not resolved yet, and turns a complete scope into ShuttingDown again.
// Use Guard for a part of work that was already admitted, and [Swansong.TryGuard] to take on new
// work.
//
// Guard takes no lock while the scope is running, except in these cases:
//
//   - The first guard of a child scope, or its first guard after a long idle time, takes a mutex of
//     the parent scope for a few loads and stores.
//   - A traced guard takes a mutex of its scope.
//   - If goroutines have collided on the counter 64 times within a millisecond, one guard takes a
//     mutex once and spreads the counter over the processors (512 bytes each, 32 KiB at most).
//
// Guard panics if 2^30 guards are held on one scope. A scope whose counter is spread panics when it
// is stopped.
func (s *Swansong) Guard() *Guard {
	return &Guard{guardState: s.acquire()}
}

// TryGuard returns a new guard and true, or nil and false once the scope has been told to stop. If
// it returns true, the guard was counted before the signal to stop was given, so the scope does not
// complete before the guard is released. If it returns false, Err and [context.Cause] of the scope
// are set. For locks and panics see [Swansong.Guard].
func (s *Swansong) TryGuard() (g *Guard, ok bool) {
	state, ok := s.tryAcquire()
	if ok {
		g = &Guard{guardState: state}
	}
	return g, ok
}

// Release gives the guard back. It does nothing if g is nil or has been released. A Release
// synchronizes before the closing of the Done channel of every [Completion] that had to wait for
// the guard.
//
// Release panics if guards of the scope are released more often than they were acquired, which is
// possible only with a copied Guard. If many goroutines use the scope at the same time, the call
// that stops the scope panics instead.
func (g *Guard) Release() {
	if g == nil || g.scope == nil {
		return
	}
	s, c := g.scope, g.count
	g.scope, g.count = nil, nil // a reference to a released Guard must not keep the scope in memory
	if r := g.trace; r != nil {
		// The record may refer to a request. A reference to a released Guard must not keep that in
		// memory.
		g.trace = nil
		s.releaseTraced(r, c)
		return
	}
	// This call of node.Release is also in releaseTraced. If both were in one helper function,
	// every release would make one more call, which takes a fifth of the time of a guard.
	s.node.Release(c)
}

// Clone returns a new guard of the same scope, which is counted and released independently of g.
// Clone also succeeds after the scope has been told to stop. The clone of a nil guard is nil. Clone
// panics if g has been released, because the work that g stood for might have ended.
func (g *Guard) Clone() *Guard {
	if g == nil {
		return nil
	}
	if g.scope == nil {
		panic("ctxshutdown: Clone of a released Guard")
	}
	return &Guard{guardState: g.scope.acquire()}
}

// acquire counts a guard in every state of the scope.
func (s *Swansong) acquire() guardState {
	s.mustNotBeNil()
	if s.trace != nil {
		return s.acquireTraced()
	}
	c, before, v := s.node.Count()
	s.node.FinishAcquire(c, before, v)
	return guardState{scope: s, count: c}
}

func (s *Swansong) acquireTraced() guardState {
	s.trace.callHook(ctxkey.BeforeAcquire)
	c, before, v := s.node.Count()
	s.node.FinishAcquire(c, before, v)
	var pc [1]uintptr
	runtime.Callers(4, pc[:]) // skips the frames of Callers, acquireTraced, acquire, and Guard or Clone
	return guardState{s, s.trace.add(pc[0]), c}
}

// tryAcquire counts a guard unless the scope has been told to stop.
//
// It counts first and checks afterwards: a check before the count would leave a gap in which a stop
// misses the guard. See docs/internals/core.md#semantic-2.
func (s *Swansong) tryAcquire() (guardState, bool) {
	s.mustNotBeNil()
	if s.trace != nil {
		return acquireFromContext(s, 4) // checks for a stop as the code below does, and also traces the guard
	}
	if !s.node.IsLive() && s.Err() != nil {
		return guardState{}, false // the scope has been stopped, so no guard needs to be counted
	}
	c, before, v := s.node.Count()
	s.node.FinishAcquire(c, before, v)
	// Before the context of a scope is cancelled, the scope is marked. If the guard was counted
	// before the mark, no stop had been signalled, and there is no need to call Err. See
	// docs/internals/counting.md#warning.
	if !packed.BeforeWarning(v) && !s.node.BeforeWarning() && s.Err() != nil {
		// Release the guard, instead of only subtracting it from the count: if it was the last
		// guard, the release must complete the scope.
		s.node.Release(c)
		return guardState{}, false
	}
	return guardState{scope: s, count: c}, true
}

func (s *Swansong) releaseTraced(r *guardRecord, c *packed.Counter) {
	s.trace.callHook(ctxkey.BeforeRelease)
	s.trace.remove(r)
	s.node.Release(c)
	s.trace.logLateRelease(s, r)
	s.trace.callHook(ctxkey.AfterRelease)
}

// Acquire returns a new guard of the nearest scope in ctx and true, or nil and false if ctx is
// done. A handler whose context derives from [Swansong.Work] can therefore acquire guards during
// the drain.
//
// If ctx is not done and carries no scope, Acquire returns nil and true. A nil guard can be
// released and cloned, so a library can call Acquire without knowing whether there is a scope.
// Acquire panics if ctx is nil.
func Acquire(ctx context.Context) (g *Guard, ok bool) {
	state, ok := acquireFromContext(ctx, 3)
	if state.scope != nil {
		g = &Guard{guardState: state}
	}
	return g, ok
}

// acquireFromContext counts a guard of the scope in ctx, if there is one. Under trace it calls
// [runtime.Callers] with skip, the number of frames to skip to get to the caller of the exported
// function.
func acquireFromContext(ctx context.Context, skip int) (guardState, bool) {
	s, found := FromContext(ctx)
	if found && s.trace != nil {
		s.trace.callHook(ctxkey.BeforeAcquire)
	}
	switch {
	case ctx.Err() != nil:
		return guardState{}, false
	case !found:
		return guardState{}, true
	}
	c, before, v := s.node.Count()
	s.node.FinishAcquire(c, before, v)
	if ctx.Err() != nil { // check ctx again, now that the guard is counted; see tryAcquire
		s.node.Release(c)
		return guardState{}, false
	}
	if s.trace == nil {
		return guardState{scope: s, count: c}, true
	}
	var pc [1]uintptr
	runtime.Callers(skip, pc[:])
	return guardState{s, s.trace.add(pc[0]), c}, true
}

// noCopy makes go vet report copies of the struct that contains it.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
