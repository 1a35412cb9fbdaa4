package eventloop

import (
	"context"
	"fmt"
	"runtime/pprof"
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
)

// A tracer makes the reports of a traced loop or pool name the user's code. In a traced loop, each
// function holds a guard of its own while it runs. The loop's own guard, which stands for all
// functions, says only where the loop was created. The goroutines of loops and pools have the pprof
// label by which reports find their stacks.
type tracer struct {
	ctxkey.Tracer // nil if the scope is not traced
	scope         *ctxshutdown.Swansong
	slow          *stopwatch    // the stopwatch of the loop; nil if there is none
	guards        *atomic.Int32 // points to the field moreGuards of the loop; nil in a pool
}

func newTracer(s *ctxshutdown.Swansong, slow *stopwatch, guards *atomic.Int32) tracer {
	t, _ := s.Value(ctxkey.Tracing{}).(ctxkey.Tracer)
	return tracer{t, s, slow, guards}
}

// on reports whether the scope is traced. Its receiver is a pointer, because every Post calls on,
// and would otherwise copy the tracer.
func (t *tracer) on() bool { return t.Tracer != nil }

// label sets the pprof label of the calling goroutine, which runs the user's functions.
func (t *tracer) label() {
	if t.on() {
		t.Label(t.scope)
	}
}

// unlabel restores the pprof labels of the calling goroutine, as [pprof.Do] does: it sets those of
// ctx.
func (t *tracer) unlabel(ctx context.Context) {
	if t.on() {
		pprof.SetGoroutineLabels(ctx)
	}
}

// caller returns the line that called into this package, or nil if the scope is not traced.
func (t *tracer) caller() fmt.Stringer {
	if !t.on() {
		return nil
	}
	return t.Caller()
}

// callback returns a function that holds a guard while it calls f. Reports name the guard by the
// line that called into this package.
func (t *tracer) callback(f func()) func() { return t.callbackAt(t.Caller(), f) }

// callbackAt is like callback, but reports name the guard by site.String().
func (t *tracer) callbackAt(site fmt.Stringer, f func()) func() {
	return func() {
		t.guards.Add(1)
		defer t.guards.Add(-1)
		g := t.scope.Guard()
		defer g.Release()
		t.Name(g, site)
		if t.slow != nil {
			t.slow.traced = f
		}
		f()
	}
}

// describedScope returns a new child scope of the scope in ctx. Summaries of reports call describe
// to learn what the guards of the new scope stand for.
func describedScope(ctx context.Context, name string, describe func(guards int) ctxkey.Work) *ctxshutdown.Swansong {
	d := &ctxkey.WorkDescriber{Describe: describe}
	s, _ := ctxshutdown.WithCancel(context.WithValue(ctx, ctxkey.Describer{}, d), ctxshutdown.WithName(name))
	d.Scope = s
	return s
}

// countedAs returns the function describe for [describedScope]. It says that each guard of the
// scope is one thing with the given noun, such as "handle".
func countedAs(noun string) func(guards int) ctxkey.Work {
	return func(guards int) ctxkey.Work { return ctxkey.Work{Noun: noun, Count: guards} }
}
