package ctxshutdown

import (
	"context"
	"sync/atomic"
)

// A look is a context that is asked for its end very often: for each element, for each Read.
//
// Where nothing but our own code can end it, a flag is raised before that, and as long as it is down there is no need to
// ask. A raised flag proves nothing; then the context is asked, as it always is where others may end it. That takes three
// times as long, for its call and its atomic value: see docs/benchmarks.md. The flag is that of
//
//   - a Work
//   - the scope of a New(context.Background())
//   - a scope below that holds a guard now, if nothing but scopes is in between: a stop above finds it and raises its flag
//     before it signals, as packed.Node.Warn tells
type look struct {
	ctx    context.Context
	ending *flag
}

// A flag is raised once. It is no atomic.Bool because of Seq: into a function literal that was inlined itself, the compiler
// inlines nothing, but does know the functions of package atomic.
type flag uint32

func (f *flag) raise()   { atomic.StoreUint32((*uint32)(f), 1) }
func (f *flag) up() bool { return atomic.LoadUint32((*uint32)(f)) != 0 }

// raised is the flag of contexts that others may end.
var raised = newRaised()

func newRaised() *flag {
	f := flag(1)
	return &f
}

func lookAt(ctx context.Context) look {
	switch c := ctx.(type) {
	case nil:
		panic("ctxshutdown: nil context")
	case *Swansong:
		g := c.wire() // before the look at the word: who stops does it the other way round
		if c.node.Unsignalled() {
			return look{g.ctx, &g.unsure}
		}
		return look{g.ctx, raised}
	case tier:
		return look{c.work.hard, &c.work.ending}
	}
	return look{ctx, raised}
}

// ended is small enough to be inlined, ask is what it spares.
func (l *look) ended() bool { return l.ending.up() && l.ask() }

//go:noinline
func (l *look) ask() bool { return l.ctx.Err() != nil }
