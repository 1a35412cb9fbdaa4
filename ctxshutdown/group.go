package ctxshutdown

import (
	"context"
	"fmt"
	"sync"

	"github.com/swansong-go/swansong/internal/unwind"
)

// A Group runs functions in goroutines under guards of a scope of its own, in the manner of
// [golang.org/x/sync/errgroup]: the first error stops that scope and is what Wait returns. It differs in that its
// functions get the scope as their context, that Go refuses once the scope has been told to stop, and that a Go that
// is waiting for a free place is woken by the stop.
//
// Its methods may be called concurrently. The zero value is not usable: make one with [NewGroup].
type Group struct {
	scope *Swansong

	mu      sync.Mutex
	sem     chan struct{} // nil: no limit
	running int
	idle    *sync.Cond // running is zero
	over    bool       // a Wait has found the group idle: nothing is started any more

	once sync.Once // decides err and the scope's cause together
	err  error
}

// NewGroup returns a group whose scope is made with [WithCancel] from ctx. Call [Group.Wait], which also releases it.
func NewGroup(ctx context.Context, opts ...Option) *Group {
	s, _ := WithCancel(ctx, opts...)
	g := &Group{scope: s}
	g.idle = sync.NewCond(&g.mu)
	return g
}

// SetLimit lets at most n functions run at once; negative means no limit, and zero lets none run. It holds for the
// calls of Go that begin after it, and panics while functions are running, as errgroup does.
func (g *Group) SetLimit(n int) {
	g.mustBeMade()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running != 0 {
		panic(fmt.Sprintf("ctxshutdown: SetLimit of a Group while %d of its functions are running", g.running))
	}
	g.sem = nil
	if n >= 0 {
		g.sem = make(chan struct{}, n)
	}
}

// Go runs f in a goroutine of its own, under a guard and with the group's scope as its context. With a limit, it
// waits for a free place or for the stop. It returns false once the scope has been told to stop or a Wait has found
// nothing running; then f never runs.
//
// A panic in f ends the program, and neither Wait nor the drain of the scope returns before that; see [Swansong.Go]. A
// function that ends its goroutine by runtime.Goexit has returned no error.
func (g *Group) Go(f func(ctx context.Context) error) bool {
	sem := g.places(f)
	if sem != nil {
		select {
		case sem <- struct{}{}:
		case <-g.scope.Done():
			return false
		}
	}
	return g.start(f, sem)
}

// TryGo is [Group.Go], but returns false instead of waiting for a free place.
func (g *Group) TryGo(f func(ctx context.Context) error) bool {
	sem := g.places(f)
	if sem != nil {
		select {
		case sem <- struct{}{}:
		default:
			return false
		}
	}
	return g.start(f, sem)
}

// places checks a call and returns where to take a place, nil where there is no limit.
func (g *Group) places(f func(ctx context.Context) error) chan struct{} {
	g.mustBeMade()
	if f == nil {
		panic("ctxshutdown: Go with a nil function")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sem
}

// start runs f in a place of sem that has been taken.
func (g *Group) start(f func(ctx context.Context) error, sem chan struct{}) bool {
	leave := func() {
		if sem != nil {
			<-sem
		}
	}
	guard, ok := g.scope.TryGuard()
	if !ok || !g.enter() {
		guard.Release()
		leave()
		return false
	}
	go func() {
		defer unwind.UnlessPanic(func() {
			leave()
			guard.Release()
			g.exit()
		})
		if err := f(guard.label(g.scope)); err != nil {
			g.decide(err)
		}
	}()
	return true
}

func (g *Group) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return false
	}
	g.running++
	return true
}

func (g *Group) exit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 {
		g.idle.Broadcast()
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

// Wait waits until no function is running, tells the group's scope to stop, and returns the first error, if any. That
// error is also the scope's cause, unless the scope had been told to stop before. Every function that was started has
// returned when Wait returns, and what it did synchronizes before that.
func (g *Group) Wait() error {
	g.mustBeMade()
	g.mu.Lock()
	for g.running > 0 {
		g.idle.Wait()
	}
	g.over = true
	g.mu.Unlock()
	g.decide(nil)
	return g.err
}

func (g *Group) mustBeMade() {
	if g.scope == nil {
		panic("ctxshutdown: use of a zero Group; make one with NewGroup")
	}
}
