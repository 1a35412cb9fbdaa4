package ctxshutdown

// Scopes: groups of goroutines.
//
// A Group has a scope of its own, so its functions can be stopped without stopping what is above.
// That scope alone cannot tell when the functions have returned: it completes only after a stop,
// and a function may pass guards to goroutines that outlive it. So the Group counts functions.
//
// A running function is counted three times: in the semaphore of the limit, by its guard for the
// drain of the scope, and in the field running for Wait. When the function returns, it is removed
// from the three counts in the same order. So when Wait returns, the guards of all functions have
// been released.

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/panics"
)

// A Group runs functions in goroutines that hold guards of a scope of its own. Like
// [golang.org/x/sync/errgroup.Group], it stops that scope at the first error and returns the error
// from Wait. It differs from errgroup in three ways: the functions get the scope as their context,
// Go returns false once the scope has been told to stop, and the stop also wakes a Go that is
// blocked by the limit.
//
// The methods of a Group may be called concurrently. The zero value is not usable; call [NewGroup].
type Group struct {
	scope *Swansong    // the context of the functions; nil in the zero Group
	sem   atomic.Value // chan struct{} with one element for each running function, or nil if there is no limit

	// running is the number of running functions. A Wait that finds no running function adds
	// noMore, so that no function starts afterwards.
	running atomic.Int64
	mu      sync.Mutex
	idle    *sync.Cond // has the lock mu; signalled when running becomes zero

	once sync.Once // lets only the first call of setResult set err and the cause of the scope
	err  error
}

// noMore is added to Group.running. It is larger than any number of goroutines.
const noMore = 1 << 40

// NewGroup returns a group whose scope is created by [WithCancel] from ctx. Call [Group.Wait] to
// wait for its functions and to stop the scope. NewGroup panics if ctx is nil.
func NewGroup(ctx context.Context, opts ...Option) *Group {
	s, _ := WithCancel(ctx, opts...)
	g := &Group{scope: s}
	g.idle = sync.NewCond(&g.mu)
	return g
}

// SetLimit limits the number of functions that run at the same time to n. A negative n means no
// limit, and zero lets no function run. The limit holds for calls of Go that begin after SetLimit.
// SetLimit panics while functions are running.
func (g *Group) SetLimit(n int) {
	g.checkInit()
	if n := g.running.Load() &^ noMore; n != 0 {
		panic(fmt.Sprintf("ctxshutdown: SetLimit called while functions of the Group are running (%d); call SetLimit before Go", n))
	}
	var sem chan struct{}
	if n >= 0 {
		sem = make(chan struct{}, n)
	}
	g.sem.Store(sem)
}

// Go calls f in a new goroutine that holds a guard, with the group's scope as its context. With a
// limit, Go blocks until fewer functions are running or the scope is told to stop. It returns
// false, without calling f, once the scope has been told to stop or a Wait has found no function
// running. It panics if f is nil.
//
// A panic in f ends the program; see [Swansong.Go]. A function that calls runtime.Goexit counts as
// returned without an error.
func (g *Group) Go(f func(ctx context.Context) error) bool {
	sem := g.semaphore(f)
	if sem != nil {
		select {
		case sem <- struct{}{}:
		case <-g.scope.Done():
			return false
		}
	}
	return g.start(f, sem)
}

// TryGo is like [Group.Go], but returns false instead of blocking for the limit.
func (g *Group) TryGo(f func(ctx context.Context) error) bool {
	sem := g.semaphore(f)
	if sem != nil {
		select {
		case sem <- struct{}{}:
		default:
			return false
		}
	}
	return g.start(f, sem)
}

// semaphore panics if the group is the zero value or f is nil. It returns the semaphore of the
// limit, or nil if the group has no limit.
func (g *Group) semaphore(f func(ctx context.Context) error) chan struct{} {
	g.checkInit()
	panicIf(f == nil, nilFunction)
	sem, _ := g.sem.Load().(chan struct{})
	return sem
}

// start calls f in a new goroutine and returns true. It returns false if the scope has been told to
// stop or a Wait has found no function running. The caller has sent an element to sem, unless sem
// is nil.
func (g *Group) start(f func(ctx context.Context) error, sem chan struct{}) bool {
	// tryAcquire refuses once the scope has been told to stop. A Wait that finds no function
	// running sets noMore, and stops the scope a moment later. Between the two, noMore prevents a
	// start.
	state, ok := g.scope.tryAcquire()
	if ok && g.running.Add(1) > noMore {
		(&Guard{guardState: state}).Release()
		g.running.Add(-1)
		ok = false
	}
	if !ok {
		leave(sem)
		return false
	}
	if sem != nil || state.trace != nil {
		go g.run(f, state, sem)
		return true
	}
	// This goroutine does what run does, but its closure contains neither sem nor a Guard: a larger
	// closure makes Go measurably slower. See docs/internals/core.md#cost-of-go.
	count := state.count
	go func() {
		defer panics.UnlessPanic(func() {
			g.scope.node.Release(count)
			g.exit()
		})
		if err := f(g.scope); err != nil {
			g.setResult(err)
		}
	}()
	return true
}

// run calls f and then ends what start began for f, in a goroutine that start has started.
func (g *Group) run(f func(ctx context.Context) error, state guardState, sem chan struct{}) {
	guard := &Guard{guardState: state}
	defer panics.UnlessPanic(func() {
		leave(sem)
		guard.Release()
		g.exit()
	})
	if err := f(guard.label(g.scope)); err != nil {
		g.setResult(err)
	}
}

// leave receives an element from sem, unless sem is nil.
func leave(sem chan struct{}) {
	if sem != nil {
		<-sem
	}
}

// exit subtracts one from the number of running functions, because a function has returned. After
// the last one, it wakes Wait.
func (g *Group) exit() {
	if g.running.Add(-1) == 0 {
		// Lock mu, so that no call of Wait is between its check for running functions and its wait
		// on idle: such a call would miss the Broadcast.
		g.mu.Lock()
		g.idle.Broadcast()
		g.mu.Unlock()
	}
}

// setResult sets the error of the group and the cause of its scope, in the first call only. One
// sync.Once sets both, so that they agree if two functions fail at the same time.
func (g *Group) setResult(err error) {
	g.once.Do(func() {
		g.err = err
		g.scope.ShutdownCause(err)
	})
}

// Wait blocks until no function is running, tells the group's scope to stop, and returns the first
// error, if any. That error is also the cause of the scope, unless the scope had been told to stop
// before. The return of every started function synchronizes before the return of Wait.
func (g *Group) Wait() error {
	g.checkInit()
	g.mu.Lock()
	for !g.running.CompareAndSwap(0, noMore) && g.running.Load() < noMore {
		g.idle.Wait()
	}
	g.mu.Unlock()
	g.setResult(nil)
	return g.err
}

// checkInit panics if g is the zero value.
func (g *Group) checkInit() {
	if g.scope == nil {
		panic("ctxshutdown: use of a zero Group; make one with NewGroup")
	}
}
