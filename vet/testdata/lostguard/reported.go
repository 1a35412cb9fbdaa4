// Package lostguard has guards that are lost on some path.
package lostguard

import (
	"context"
	"errors"
	"os"

	"github.com/swansong-go/swansong/ctxshutdown"
)

var errStopping = errors.New("stopping")

func work() error          { return nil }
func use(g any)            {}
func done(context.Context) {}

func anEarlyReturn(s *ctxshutdown.Swansong) error {
	g := s.Guard() // want `the guard g is not released when the function returns at line 21; write defer g.Release\(\), or hand it over on every path`
	if err := work(); err != nil {
		return err
	}
	g.Release()
	return nil
}

func never(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard() // want `the guard g is not released when the function returns at line 34`
	if !ok {
		return
	}
	_ = g
	work()
}

func neverAlthoughOKIsChecked(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard() // want `the guard g is not released`
	if ok {
		work()
	}
	_ = g
}

func inAnIf(ctx context.Context) {
	if g, ok := ctxshutdown.Acquire(ctx); ok { // want `the guard g is not released`
		if work() == nil {
			g.Release()
		}
	}
}

func inAnElse(ctx context.Context) {
	if g, ok := ctxshutdown.Acquire(ctx); !ok { // want `the guard g is not released`
		return
	} else {
		if work() == nil {
			g.Release()
		}
	}
}

func declared(s *ctxshutdown.Swansong) error {
	var g = s.Guard() // want `the guard g is not released`
	if err := work(); err != nil {
		return err
	}
	g.Release()
	return nil
}

func aClone(g *ctxshutdown.Guard) error {
	c := g.Clone() // want `the guard c is not released`
	if err := work(); err != nil {
		return err
	}
	c.Release()
	return nil
}

func onOneLine(s *ctxshutdown.Swansong) func() {
	return func() { g := s.Guard(); g.Clone().Release() } // want `the guard g is not released`
}

func inACase(s *ctxshutdown.Swansong, n int) error {
	switch n {
	case 1:
		g := s.Guard() // want `the guard g is not released`
		if err := work(); err != nil {
			return err
		}
		g.Release()
	}
	return nil
}

// The goroutine releases the guard, but the return before it does not. A defer would release it while the goroutine works.
func handedOverTooLate(s *ctxshutdown.Swansong) error {
	g := s.Guard() // want `the guard g is not released when the function returns at line 100`
	if err := work(); err != nil {
		return err
	}
	go func() {
		defer g.Release()
		work()
	}()
	return nil
}

func inALoop(s *ctxshutdown.Swansong, jobs []int) {
	for range jobs {
		g := s.Guard() // want `the guard g is not released when the loop repeats`
		if work() != nil {
			continue
		}
		g.Release()
	}
}

func forEver(s *ctxshutdown.Swansong) {
	for {
		g, ok := s.TryGuard() // want `the guard g is not released when the loop repeats`
		if !ok {
			return
		}
		if work() == nil {
			g.Release()
		}
	}
}

func overwritten(s *ctxshutdown.Swansong) {
	g := s.Guard() // want `the guard g is not released when g is overwritten at line 133`
	g = s.Guard()
	g.Release()
}

// In this function ok has the value from the channel, not that of TryGuard.
func anotherOK(s *ctxshutdown.Swansong, jobs chan int) {
	g, ok := s.TryGuard() // want `the guard g is not released when the function returns at line 145`
	if !ok {
		return
	}
	_, ok = <-jobs
	if !ok {
		return
	}
	g.Release()
}

func anotherCondition(s *ctxshutdown.Swansong, full bool) error {
	g, ok := s.TryGuard() // want `the guard g is not released when the function returns at line 153`
	if !ok || full {
		return errStopping
	}
	g.Release()
	return nil
}

func assigned(s *ctxshutdown.Swansong, wanted bool) {
	var g *ctxshutdown.Guard
	if wanted {
		g = s.Guard() // want `the guard g is not released`
	}
	if g != nil {
		work()
	}
}

func aResult(s *ctxshutdown.Swansong) (g *ctxshutdown.Guard, err error) {
	held := s.Guard() // want `the guard held is not released when the function returns at line 172`
	if err := work(); err != nil {
		return nil, err
	}
	return held, nil
}

func discarded(s *ctxshutdown.Swansong) {
	s.Guard() // want `the guard of Guard is discarded, so nothing can release it: assign it to a variable, and release it`
	work()
}

func discardedInALoop(s *ctxshutdown.Swansong) {
	for {
		s.Guard() // want `the guard of Guard is discarded`
	}
}

func discardedByName(s *ctxshutdown.Swansong) {
	_ = s.Guard() // want `the guard of Guard is discarded`
}

func discardedByTheWay(s *ctxshutdown.Swansong) {
	s.TryGuard()                    // want `the guard of TryGuard is discarded, so nothing can release it: assign it to a variable, and release it; to find out whether a scope is running, call its Err`
	use(s.Guard().Clone())          // want `the guard of Guard is discarded`
	go s.Guard()                    // want `the guard of Guard is discarded`
	defer s.Guard()                 // want `the guard of Guard is discarded`
	var _, _ = s.Guard(), s.Guard() // want `the guard of Guard is discarded` `the guard of Guard is discarded`
}

func asking(s *ctxshutdown.Swansong) bool {
	if _, ok := s.TryGuard(); ok { // want `the guard of TryGuard is discarded`
		return true
	}
	return false
}

func askingForEver(ctx context.Context) {
	for {
		if _, ok := ctxshutdown.Acquire(ctx); !ok { // want `the guard of Acquire is discarded`
			os.Exit(0)
		}
		done(ctx)
	}
}

type server struct{ scope *ctxshutdown.Swansong }

func (s *server) handle() error {
	g, ok := s.scope.TryGuard() // want `the guard g is not released when the function returns at line 224`
	if !ok {
		return errStopping
	}
	if err := work(); err != nil {
		return err
	}
	g.Release()
	return nil
}

// The loop leads back to a return that is above the acquisition.
func backToAReturn(s *ctxshutdown.Swansong, stop chan int) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		g := s.Guard() // want `the guard g is not released when the loop repeats`
		if work() != nil {
			continue
		}
		g.Release()
	}
}

func comparedTheOtherWay(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard() // want `the guard g is not released`
	if ok == true {
		return
	}
	g.Release()
}

func switchedTheOtherWay(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard() // want `the guard g is not released`
	switch ok {
	case false:
		g.Release()
	case true:
	}
}

// The function hands the guard over to the goroutine, which must release it on every path.
func inAGoroutineThatLeaves(s *ctxshutdown.Swansong, full bool) {
	g, ok := s.TryGuard() // want `the guard g is not released when the function returns at line 271`
	if !ok {
		return
	}
	go func() {
		if full {
			return
		}
		work()
		g.Release()
	}()
}

func inAGoroutineThatEnds(s *ctxshutdown.Swansong) {
	g := s.Guard() // want `the guard g is not released when the function returns at line 284`
	go func() {
		if work() == nil {
			g.Release()
		}
	}()
}

// If the channel is full, the job is not sent, and the function does not release its guard.
func sentWhereThereIsRoom(s *ctxshutdown.Swansong, jobs chan job, calls chan func()) error {
	g, ok := s.TryGuard() // want `the guard g is not released when the function returns at line 297`
	if !ok {
		return errStopping
	}
	select {
	case jobs <- job{g}:
		return nil
	default:
		return errors.New("too many jobs")
	}
}

func sentInAFunction(s *ctxshutdown.Swansong, calls chan func()) {
	g := s.Guard() // want `the guard g is not released`
	select {
	case calls <- func() { g.Release() }:
	default:
	}
}

func overwrittenByASelect(s *ctxshutdown.Swansong, guards chan *ctxshutdown.Guard) {
	g := s.Guard() // want `the guard g is not released when g is overwritten at line 312`
	select {
	case g = <-guards:
	default:
	}
	g.Release()
}

func givenToAGoroutineThatLeaves(s *ctxshutdown.Swansong, full bool) {
	g := s.Guard() // want `the guard mine is not released when the function returns at line 322`
	go func(mine *ctxshutdown.Guard) {
		if full {
			return
		}
		mine.Release()
	}(g)
}
