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
//   - a Work
//   - the scope of a New(context.Background()), or one below, if nothing but scopes is in between
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
		return look{c.work.hard, &c.work.ending}
	}
	done := ctx.Done()
	if done == nil {
		return look{ctx, &never}
	}
	if s, ok := fromContext(ctx); ok {
		if g := s.signal.Load(); g != nil && done == g.ctx.Done() {
			return lookAt(s)
		}
		if w := s.work.Load(); w != nil && done == w.hard.Done() {
			return lookAt(w.ctx)
		}
	}
	return look{ctx, raised}
}

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

// flags are those that a stop of one scope has to raise: its own, and those of what is looked at below, at any depth.
//
//	who looks   puts the flag of its scope where each stop that ends it will raise it, and then asks for warnings
//	who stops   warns (packed.Node.Warn), and then raises what is there, and then signals
//
// So either the one sees the warning, or the other the flag. The scopes themselves are not held on to, and need not be known
// to the tree of counts: a child that is looked at, holds no guard and is forgotten can be collected, and leaves a flag.
type flags struct {
	own   flag
	known atomic.Bool // own is where it belongs, or has been raised because that is too late

	mu    sync.Mutex
	below []*flag
	limit int // the length at which the next one sweeps
}

// flag returns the flag of s, which is raised before anybody ends s.
func (s *Swansong) flag() *flag {
	g := s.wire()
	if f := g.flags.Load(); f != nil && f.known.Load() {
		return &f.own
	}
	if s.node.Warned() {
		return raised
	}
	f := g.lookedAt()
	for above := s.up(); above != nil; above = above.up() {
		if g := above.wire(); !g.detached() { // else it has been stopped, and that is the signal of many
			g.lookedAt().add(&f.own)
		}
	}
	if late := s.node.Warned(); late {
		f.own.raise()
	}
	f.known.Store(true)
	return &f.own
}

func (g *signal) lookedAt() *flags {
	if f := g.flags.Load(); f != nil {
		return f
	}
	g.flags.CompareAndSwap(nil, new(flags))
	return g.flags.Load()
}

// warn has whoever looks here or below ask the signal from now on.
func (g *signal) warn() {
	if f := g.flags.Load(); f != nil {
		f.raise()
	}
}

const minFlags = 32

// add adds a flag of a scope below. Those of scopes that were stopped stay until their number has doubled since the last
// sweep, so that a sweep costs each of them a constant.
func (f *flags) add(below *flag) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.below) >= max(f.limit, minFlags) {
		f.below = slices.DeleteFunc(f.below, (*flag).up)
		f.limit = 2 * len(f.below)
	}
	f.below = append(f.below, below)
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
