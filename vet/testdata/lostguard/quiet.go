package lostguard

import (
	"context"
	"log"
	"os"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func deferred(s *ctxshutdown.Swansong) error {
	g, ok := s.TryGuard()
	if !ok {
		return errStopping
	}
	defer g.Release()
	return work()
}

func deferredAtOnce(s *ctxshutdown.Swansong) {
	defer s.Guard().Release()
	work()
}

func deferredInAFunction(s *ctxshutdown.Swansong) error {
	g := s.Guard()
	defer func() {
		work()
		g.Release()
	}()
	return work()
}

func deferredWithoutCheckOfOK(ctx context.Context) error {
	g, _ := ctxshutdown.Acquire(ctx)
	defer g.Release()
	return work()
}

func onAllPaths(s *ctxshutdown.Swansong) error {
	g := s.Guard()
	if err := work(); err != nil {
		g.Release()
		return err
	}
	g.Release()
	return nil
}

func inABranch(s *ctxshutdown.Swansong, full bool) {
	if g, ok := s.TryGuard(); ok && !full || ok {
		g.Release()
	}
	if g, ok := s.TryGuard(); !ok {
		work()
	} else {
		g.Release()
	}
	switch g, ok := s.TryGuard(); {
	case ok:
		g.Release()
	default:
		work()
	}
}

func byNil(s *ctxshutdown.Swansong) {
	g, _ := s.TryGuard()
	if g == nil {
		return
	}
	work()
	if nil != g {
		g.Release()
	}
}

func inALoopOnAllPaths(s *ctxshutdown.Swansong, jobs chan func()) {
	for job := range jobs {
		g, ok := s.TryGuard()
		if !ok {
			break
		}
		job()
		g.Release()
	}
}

func untilAdmitted(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard()
	for !ok {
		g, ok = s.TryGuard()
	}
	g.Release()
}

func returned(s *ctxshutdown.Swansong) *ctxshutdown.Guard {
	g := s.Guard()
	return g
}

func returnedAtOnce(s *ctxshutdown.Swansong) (*ctxshutdown.Guard, bool) { return s.TryGuard() }

func returnedByName(s *ctxshutdown.Swansong) (g *ctxshutdown.Guard) {
	g = s.Guard()
	return
}

type job struct{ guard *ctxshutdown.Guard }

var last *ctxshutdown.Guard

func stored(s *ctxshutdown.Swansong, jobs chan job, guards []*ctxshutdown.Guard) {
	g := s.Guard()
	jobs <- job{g}
	guards[0] = s.Guard()
	last = s.Guard()
	j := job{guard: s.Guard()}
	j.guard, _ = s.TryGuard()
	other := s.Guard()
	guards = append(guards, other)
	passed := s.Guard()
	use(passed)
	use(s.Guard())
	pointed := s.Guard()
	use(&pointed)
	release := s.Guard().Release
	release()
}

func inAGoroutine(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard()
	if !ok {
		return
	}
	go func() {
		defer g.Release()
		work()
	}()
}

func captured(s *ctxshutdown.Swansong) func() {
	var g *ctxshutdown.Guard
	release := func() { g.Release() }
	g = s.Guard()
	return release
}

func assignedInAFunction(s *ctxshutdown.Swansong) (release func()) {
	var g *ctxshutdown.Guard
	func() { g = s.Guard() }()
	return g.Release
}

func underTheSameCondition(s *ctxshutdown.Swansong, wanted bool) {
	var g *ctxshutdown.Guard
	if wanted {
		g = s.Guard()
	}
	work()
	if wanted {
		g.Release()
	}
}

func storedOK(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard()
	admitted := ok
	if admitted {
		g.Release()
	}
}

func passedOK(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard()
	must(ok)
	if ok {
		g.Release()
	}
}

func must(ok bool) {
	if !ok {
		panic("must")
	}
}

func itsEndIsTheEnd(s *ctxshutdown.Swansong) {
	g := s.Guard()
	switch work() {
	case nil:
		g.Release()
	case errStopping:
		panic("no")
	case os.ErrClosed:
		os.Exit(1)
	default:
		log.Fatal("no")
	}
}

func itNeverEnds(s *ctxshutdown.Swansong) {
	g := s.Guard()
	_ = g
	select {}
}

func refused(s *ctxshutdown.Swansong) {
	if _, ok := s.TryGuard(); ok {
		panic("admitted")
	}
}

func comparedWithFalse(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard()
	if ok == false {
		return
	}
	g.Release()
	h, ok := s.TryGuard()
	if true != ok {
		return
	}
	h.Release()
	const admitted = true
	i, ok := s.TryGuard()
	if !(ok == admitted) {
		return
	}
	i.Release()
}

func switched(s *ctxshutdown.Swansong) {
	g, ok := s.TryGuard()
	switch ok {
	case true:
		g.Release()
	case false:
	}
	switch h, ok := s.TryGuard(); ok {
	case false:
		return
	case true:
		h.Release()
	}
	i, ok := s.TryGuard()
	switch ok {
	case true:
		i.Release()
	}
	j, _ := s.TryGuard()
	switch j {
	case nil:
		return
	}
	j.Release()
}

func inAGoroutineOnAllPaths(s *ctxshutdown.Swansong, full bool) {
	g, ok := s.TryGuard()
	if !ok {
		return
	}
	go func() {
		if full {
			g.Release()
			return
		}
		for work() != nil {
		}
		g.Release()
	}()
	h, ok := s.TryGuard()
	go func() {
		if !ok {
			return
		}
		work()
		h.Release()
	}()
	i := s.Guard()
	go func() {
		defer func() { i.Release() }()
		if full {
			return
		}
		work()
	}()
}

// A function literal releases the guard. Other code has the literal and may call it once, twice or
// never.
func byFunctions(s *ctxshutdown.Swansong, full bool, jobs chan func()) {
	g := s.Guard()
	jobs <- func() {
		if full {
			return
		}
		g.Release()
	}
	h := s.Guard()
	go func() {
		if full {
			return
		}
		h.Release()
	}()
	defer h.Release()
	i := s.Guard()
	go func() {
		if full {
			jobs <- func() { i.Release() }
			return
		}
		i.Release()
	}()
}

// A select makes the calls in its cases before it chooses a case.
func bySelect(s *ctxshutdown.Swansong, jobs chan job, calls chan func()) {
	g := s.Guard()
	select {
	case jobs <- job{g}:
	default:
		g.Release()
	}
	h := s.Guard()
	select {
	case jobs <- newJob(h):
	default:
	}
	i := s.Guard()
	select {
	case calls <- func() { i.Release() }:
	case <-s.Work().Done():
		i.Release()
	}
	k, ok := s.TryGuard()
	select {
	case _, ok = <-calls: // here ok says nothing about the guard
		k.Release()
	default:
		if !ok {
			return
		}
		k.Release()
	}
}

func newJob(g *ctxshutdown.Guard) job { return job{g} }

func givenToAGoroutine(s *ctxshutdown.Swansong, full bool) {
	g := s.Guard()
	go func(mine *ctxshutdown.Guard) {
		defer mine.Release()
		if full {
			return
		}
		work()
	}(g)
	h := s.Guard()
	go func(mine *ctxshutdown.Guard) {
		if full {
			keep(mine)
			return
		}
		mine.Release()
	}(h)
	i := s.Guard()
	go func(mine any) {
		if full {
			return
		}
		use(mine)
	}(i)
	k := s.Guard()
	go func(mine ...*ctxshutdown.Guard) {
		if full {
			return
		}
		mine[0].Release()
	}(k)
}

func keep(g *ctxshutdown.Guard) { last = g }
