package ctxshutdown

import (
	"context"
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/packed"
	"github.com/swansong-go/swansong/internal/probe"
)

// A Guard is a piece of committed work: until it is released, its scope and every scope above are not complete. The
// zero Guard counts as released.
//
// It is made to live on the stack: as long as it does not escape, acquiring and releasing allocate nothing. (It does
// escape where it is acquired in a function literal that is itself inlined; go build -gcflags=-m tells.) It must not
// be copied, and its methods must not be called concurrently with its own Release. A leaked guard blocks its scope
// for ever, and is named by every report.
type Guard struct {
	_ noCopy
	hold
}

// A hold is what a guard holds. Passing it around instead of its parts keeps the constructors of Guard small enough
// to be inlined; else every guard would be on the heap. TestGuardsDoNotAllocate watches over it.
type hold struct {
	scope *Swansong // nil: released
	trace *record   // nil: not traced
	// count is where the guard is counted: to remember it takes less than to find it again. It is not beside scope, for one
	// wide store that clears both makes a guard take a sixth more.
	count *atomic.Uint64
}

// Guard returns a new guard of the scope. It always counts, also after the stop: then it delays every completion not
// yet resolved, and makes a complete scope ShuttingDown again. Code that takes on new work asks [Swansong.TryGuard];
// Guard is for work that is part of something already admitted.
//
// It takes no lock while the scope is running, with three exceptions: a guard that makes a child known to its parent,
// the child's first or the first after a long idle time, takes a mutex of the parent for a few loads and stores; a
// traced guard takes one of its scope; and so does, once, the guard that finds that goroutines have got into each other's
// way 64 times in a millisecond, and spreads the scope's guards over processors (512 B for each, 32 kB at most). Like a sync.WaitGroup, it panics at an absurd count, of 2^30 guards on one scope;
// a scope whose guards are spread does when it is stopped.
func (s *Swansong) Guard() *Guard {
	return &Guard{hold: s.acquire()}
}

// TryGuard returns a guard, or nil and false once the scope has been told to stop: counting and admission in one
// step. If it returns true, the guard was counted before the stop was signalled, and the stop waits for it. If it
// returns false, Err and Cause are set. For locks see [Swansong.Guard].
func (s *Swansong) TryGuard() (g *Guard, ok bool) {
	h, ok := s.try()
	if ok {
		g = &Guard{hold: h}
	}
	return g, ok
}

// Release gives the guard back; again is a no-op, and so is Release of a nil guard. What happened before Release
// synchronizes before the closing of the completion channels that it lets close. More releases than acquisitions, which
// takes a copied Guard, panic: at once, or on a scope that many goroutines use at a time, when it is told to stop.
func (g *Guard) Release() {
	if g == nil || g.scope == nil {
		return
	}
	s, c := g.scope, g.count
	g.scope, g.count = nil, nil // who keeps a released guard keeps no scope
	if g.trace != nil {
		s.releaseTraced(g.trace, c)
		return
	}
	// Here, not in a function that both ways share: one call more is a fifth of the time of a guard.
	s.node.Discount(c)
}

// Clone returns another guard of the same scope, counted on its own, also after the stop. The clone of a nil guard is
// nil. Clone panics if g has been released: what it stood for may be over.
func (g *Guard) Clone() *Guard {
	if g == nil {
		return nil
	}
	if g.scope == nil {
		panic("ctxshutdown: Clone of a released Guard")
	}
	return &Guard{hold: g.scope.acquire()}
}

func (s *Swansong) acquire() hold {
	if s.trace != nil {
		return s.acquireTraced()
	}
	c, v := s.node.Count()
	s.node.Acquired(c, v)
	return hold{scope: s, count: c}
}

func (s *Swansong) acquireTraced() hold {
	s.trace.reach(probe.Acquiring)
	c, v := s.node.Count()
	s.node.Acquired(c, v)
	return s.held(c)
}

// held returns the hold of an acquisition that has been counted in c.
func (s *Swansong) held(c *atomic.Uint64) hold {
	if s.trace == nil {
		return hold{scope: s, count: c}
	}
	return hold{s, s.trace.acquired(), c}
}

func (s *Swansong) try() (hold, bool) {
	if s.trace != nil {
		return acquireFrom(s) // the same, without the shortcuts
	}
	if !s.node.Live() && s.Err() != nil {
		return hold{}, false // spares a stopped scope the coming and going of refused tries
	}
	c, v := s.node.Count()
	s.node.Acquired(c, v)
	if !packed.Unsignalled(v) && !s.node.Unsignalled() && s.Err() != nil {
		s.node.Discount(c) // in full: the last one out wakes whoever waits, refused or not
		return hold{}, false
	}
	return hold{scope: s, count: c}, true
}

func (s *Swansong) releaseTraced(t *record, c *atomic.Uint64) {
	s.trace.reach(probe.Releasing)
	m := s.trace.forget(t)
	s.node.Discount(c)
	s.trace.reportLate(s, m)
	s.trace.reach(probe.Released)
}

// Acquire returns a guard of the nearest scope in ctx. By the rule that the tier belongs to the context, it refuses
// if and only if ctx is done: a handler whose ctx derives from [Swansong.Work] acquires during the drain. When ctx is
// not done and carries no scope, Acquire returns nil and true; a nil guard may be released and cloned, so a library
// can always ask.
func Acquire(ctx context.Context) (g *Guard, ok bool) {
	h, ok := acquireFrom(ctx)
	if h.scope != nil {
		g = &Guard{hold: h}
	}
	return g, ok
}

func acquireFrom(ctx context.Context) (hold, bool) {
	s, found := fromContext(ctx)
	if found && s.trace != nil {
		s.trace.reach(probe.Acquiring)
	}
	switch {
	case ctx.Err() != nil:
		return hold{}, false
	case !found:
		return hold{}, true
	}
	c, v := s.node.Count()
	s.node.Acquired(c, v)
	if ctx.Err() != nil {
		s.node.Discount(c)
		return hold{}, false
	}
	return s.held(c), true
}

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
