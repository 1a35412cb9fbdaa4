package ctxshutdown

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// A look is a context that is asked for its end very often: for each element, for each Read.
//
// Where nothing but our own code can end it, a flag is raised before that, and as long as it is down there is no need to
// ask. A raised flag proves nothing; then the context is asked, as it always is where others may end it. That takes three
// times as long, for its call and its atomic value: see docs/benchmarks.md. The flag is that of
//
//   - a scope
//   - a Work
//   - either of them with values, or whatever else has its Done
//   - nobody, where there is no Done: such a context does not end
type look struct {
	ctx    context.Context
	ending *flag
}

func lookAt(ctx context.Context) look {
	switch c := ctx.(type) {
	case nil:
		panic("ctxshutdown: nil context")
	case *Swansong:
		return look{c.wire().ctx, c.flag()}
	case tier:
		return look{c.work.hard, &c.work.flags.own}
	}
	done := ctx.Done()
	if done == nil {
		return look{ctx, &never}
	}
	if s, ok := fromContext(ctx); ok {
		if s.waitsFor(done) {
			return lookAt(s)
		}
		if w := s.work.Load(); w.waitsFor(done) {
			return lookAt(w.ctx)
		}
	}
	return look{ctx, raised}
}

// waitsFor reports whether done is the Done of s. If so, s has a signal of its own.
func (s *Swansong) waitsFor(done <-chan struct{}) bool {
	g := s.signal.Load()
	return g != nil && g.ctx.Done() == done
}

func (w *work) waitsFor(done <-chan struct{}) bool { return w != nil && w.hard.Done() == done }

// ended is small enough to be inlined, ask is what it spares.
func (l *look) ended() bool { return l.ending.up() && l.ask() }

//go:noinline
func (l *look) ask() bool { return l.ctx.Err() != nil }

// A flag is raised once. It is no atomic.Bool because of Seq: into a function literal that was inlined itself, the compiler
// inlines nothing, but does know the functions of package atomic.
type flag uint32

func (f *flag) raise()   { atomic.StoreUint32((*uint32)(f), 1) }
func (f *flag) up() bool { return atomic.LoadUint32((*uint32)(f)) != 0 }

// raised is the flag of contexts that others may end, and never that of those that nobody ends.
var (
	raised = newRaised()
	never  flag
)

func newRaised() *flag {
	f := flag(1)
	return &f
}

// flags are those that are raised before one signal is given: its own, and those of what is looked at below, at any depth.
//
//	who looks   puts the flag of its scope where each end that may reach it raises flags, unless that has happened
//	who stops   raises what is there, and then signals
//
// Either the one finds that it is too late, or the other the flag. The scopes themselves are not held on to, and need not be
// known to the tree of counts: a child that is looked at, holds no guard and is forgotten can be collected, and leaves a flag.
type flags struct {
	own   flag
	known atomic.Bool // own is where it belongs, or has been raised because others may end the scope, or because it is too late

	mu    sync.Mutex
	below []*flag
	limit int // the length at which the next one sweeps
}

// over are the flags of what ended before anybody looked.
var over = overFlags()

func overFlags() *flags {
	f := &flags{own: 1}
	f.known.Store(true)
	return f
}

// flag returns the flag of s, which is raised before anybody ends s.
func (s *Swansong) flag() *flag {
	f := s.wire().lookedAt()
	if !f.known.Load() {
		if !s.report(&f.own) {
			f.own.raise()
		}
		f.known.Store(true)
	}
	return &f.own
}

// report puts f where all that ends s from above raises flags. It reports whether that is all there is, and not too late.
func (s *Swansong) report(f *flag) bool {
	for {
		done, up := s.parent.Done(), s.up()
		switch {
		case done == nil:
			return true // nobody is above
		case up == nil:
			return false // somebody else is
		case up.work.Load().waitsFor(done):
			return up.work.Load().flags.add(f) // which does not end with what is above, see work
		case !up.waitsFor(done) || !up.wire().lookedAt().add(f):
			return false
		}
		s = up
	}
}

// lookedAt returns the flags that are raised before g is given.
func (g *signal) lookedAt() *flags {
	if f := g.flags.Load(); f != nil {
		return f
	}
	g.flags.CompareAndSwap(nil, new(flags))
	return g.flags.Load()
}

// warn has whoever looks here or below ask the signal from now on.
func (g *signal) warn() {
	if g.flags.CompareAndSwap(nil, over) {
		return
	}
	if f := g.flags.Load(); f != over { // which all share
		f.raise()
	}
}

const minFlags = 32

// add adds a flag of a scope below, unless it is too late. Those of scopes that were stopped stay until their number has
// doubled since the last sweep, so that a sweep costs each of them a constant.
func (f *flags) add(below *flag) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own.up() {
		return false
	}
	if len(f.below) >= max(f.limit, minFlags) {
		f.below = slices.DeleteFunc(f.below, (*flag).up)
		f.limit = 2 * len(f.below)
	}
	f.below = append(f.below, below)
	return true
}

// raise returns when all are up, whoever raised them.
func (f *flags) raise() {
	f.own.raise()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, below := range f.below {
		below.raise()
	}
	f.below = nil
}
