package oteldrain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/topscopes"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// shown is how many blockers an event names.
const shown = 10

// Trace records the drain of s as a span, "swansong.drain", with a tracer of tp. The span begins with the lame duck where s
// belongs to a [graceful.Process], at the stop otherwise, and ends when s is complete. Its events are the rungs,
// lame_duck, soft and hard, and the extensions that were granted; each says who held guards at that moment:
//
//	swansong.cause     why the rung was entered
//	swansong.guards    how many guards
//	swansong.blockers  the first ten of them by scope, as in "app/http ×2"
//
// The span has swansong.outcome: clean, forced or abandoned.
//
// end waits for the span to end if s is complete, and ends it as abandoned, with an error that names who still holds
// guards, if it is not; without a drain there is no span. Call it before tp is shut down, once nobody waits for s any
// more. Again is a no-op.
func Trace(s *ctxshutdown.Swansong, tp trace.TracerProvider) (end func(), err error) {
	switch {
	case s == nil:
		return nil, errors.New("oteldrain: Trace of a nil scope")
	case tp == nil:
		return nil, errors.New("oteldrain: Trace with a nil trace.TracerProvider; otel.GetTracerProvider() is the global one")
	}
	d := &drain{scope: s, tracer: tp.Tracer(scopeName), over: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.follow()
	}()
	over := sync.OnceFunc(func() { close(d.over) })
	return func() {
		over()
		<-done
	}, nil
}

// A drain is what becomes of a scope. All but extended happens on one goroutine.
type drain struct {
	scope  *ctxshutdown.Swansong
	tracer trace.Tracer
	over   chan struct{} // nobody waits any more

	mu       sync.Mutex
	span     trace.Span
	extended time.Duration
}

func (d *drain) follow() {
	var lame <-chan struct{}
	p, ok := graceful.FromContext(d.scope)
	if ok {
		lame = p.LameDuck()
	}
	select {
	case <-lame:
	case <-d.scope.Done():
	case <-d.over:
		if d.scope.Err() == nil {
			return // no drain
		}
	}
	d.begin()
	if ok {
		defer p.Watch(d.watch)()
		if closed(lame) {
			d.event("lame_duck", p.Status().Cause)
		}
	}
	select {
	case <-d.scope.Done():
	case <-d.over:
	}
	if d.scope.Err() == nil {
		d.end("abandoned")
		return
	}
	d.event("soft", context.Cause(d.scope))

	complete, work := d.scope.Completion().Done(), d.scope.Work()
	outcome := "clean"
	select {
	case <-complete:
	case <-work.Done():
	case <-d.over:
	}
	// Work ends after a completion, too: with ErrShutdown then.
	if cause := context.Cause(work); cause != nil && cause != ctxshutdown.ErrShutdown {
		outcome = "forced"
		d.event("hard", cause)
	}
	select {
	case <-complete:
	case <-d.over:
	}
	if !closed(complete) {
		outcome = "abandoned"
	}
	d.end(outcome)
}

func (d *drain) begin() {
	// WithoutCancel: the values of the scope, a span of the program among them, and no context that has ended.
	_, span := d.tracer.Start(context.WithoutCancel(d.scope), "swansong.drain")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.span = span
}

func (d *drain) event(name string, cause error, more ...attribute.KeyValue) {
	d.span.AddEvent(name, trace.WithAttributes(append(blockers(d.scope.GuardReport()), append(more,
		attribute.String("swansong.cause", fmt.Sprint(cause)))...)...))
}

// watch records the extensions.
func (d *drain) watch(st graceful.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if st.Extended > d.extended {
		d.event("extended", st.Cause,
			attribute.String("swansong.reason", st.Reason),
			attribute.Float64("swansong.granted_seconds", (st.Extended-d.extended).Seconds()))
		d.extended = st.Extended
	}
}

func (d *drain) end(outcome string) {
	d.span.SetAttributes(attribute.String("swansong.outcome", outcome))
	if outcome == "abandoned" {
		r := d.scope.GuardReport()
		d.span.SetAttributes(blockers(r)...)
		d.span.SetStatus(codes.Error, "abandoned with "+r.String())
	}
	d.span.End()
}

func blockers(r ctxshutdown.GuardReport) []attribute.KeyValue {
	var list []string
	entries := r.Entries()
	for _, e := range entries[:min(shown, len(entries))] {
		text := fmt.Sprintf("%s ×%d", cmp.Or(e.Path, topscopes.Unnamed), e.Count)
		if e.Site != "" {
			text += fmt.Sprintf(" at %s for %v", e.Site, e.Oldest.Round(time.Millisecond))
		}
		list = append(list, text)
	}
	return []attribute.KeyValue{
		attribute.Int("swansong.guards", r.Count()),
		attribute.StringSlice("swansong.blockers", list),
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
