package ctxshutdown

import (
	"context"
	"fmt"
	"sync"
)

// A Group runs functions in goroutines under guards of a scope of its own, in the manner of
// [golang.org/x/sync/errgroup]: the first error stops that scope and is what Wait returns. It differs in that its
// functions get the scope as their context, that Go refuses once the scope has been told to stop, and that a Go that
// is waiting for a free place is woken by the stop.
//
// Its methods may be called concurrently, SetLimit excepted. The zero value is not usable: make one with [NewGroup].
type Group struct {
	scope *Swansong
	sem   chan struct{} // nil: no limit
	tasks sync.WaitGroup
	once  sync.Once // decides err and the scope's cause together
	err   error
}

// NewGroup returns a group whose scope is made with [WithCancel] from ctx. Call [Group.Wait], which also releases it.
func NewGroup(ctx context.Context, opts ...Option) *Group {
	s, _ := WithCancel(ctx, opts...)
	return &Group{scope: s}
}

// SetLimit lets at most n functions run at once; negative means no limit, and zero lets none run. It panics while
// functions are running, as errgroup does.
func (g *Group) SetLimit(n int) {
	g.mustBeMade()
	if len(g.sem) != 0 {
		panic(fmt.Sprintf("ctxshutdown: SetLimit of a Group while %d of its functions are running", len(g.sem)))
	}
	g.sem = nil
	if n >= 0 {
		g.sem = make(chan struct{}, n)
	}
}

// Go runs f in a goroutine of its own, under a guard and with the group's scope as its context. With a limit, it
// waits for a free place or for the stop. It returns false once the scope has been told to stop; then f never runs.
//
// A panic in f releases the guard on its way and then ends the program; see [Swansong.Go].
func (g *Group) Go(f func(ctx context.Context) error) bool {
	g.mustBeMade()
	if g.sem != nil {
		select {
		case g.sem <- struct{}{}:
		case <-g.scope.Done():
			return false
		}
	}
	return g.start(f)
}

// TryGo is [Group.Go], but returns false instead of waiting for a free place.
func (g *Group) TryGo(f func(ctx context.Context) error) bool {
	g.mustBeMade()
	if g.sem != nil {
		select {
		case g.sem <- struct{}{}:
		default:
			return false
		}
	}
	return g.start(f)
}

// start runs f in a place that has been taken.
func (g *Group) start(f func(ctx context.Context) error) bool {
	if f == nil {
		g.leave()
		panic("ctxshutdown: Go with a nil function")
	}
	guard, ok := g.scope.TryGuard()
	if !ok {
		g.leave()
		return false
	}
	g.tasks.Add(1)
	go func() {
		defer g.tasks.Done()
		defer guard.Release()
		defer g.leave()
		if err := f(g.scope); err != nil {
			g.decide(err)
		}
	}()
	return true
}

func (g *Group) leave() {
	if g.sem != nil {
		<-g.sem
	}
}

// decide fixes the result of the group and the cause of its scope in one step. Of two functions that fail at once,
// the same one must be in both.
func (g *Group) decide(err error) {
	g.once.Do(func() {
		g.err = err
		g.scope.ShutdownCause(err)
	})
}

// Wait waits for the functions, tells the group's scope to stop, and returns the first error, if any. That error is
// also the scope's cause, unless the scope had been told to stop before.
func (g *Group) Wait() error {
	g.mustBeMade()
	g.tasks.Wait()
	g.decide(nil)
	return g.err
}

func (g *Group) mustBeMade() {
	if g.scope == nil {
		panic("ctxshutdown: use of a zero Group; make one with NewGroup")
	}
}
