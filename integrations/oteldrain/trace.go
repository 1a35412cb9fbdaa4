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
	"github.com/swansong-go/swansong/integrations/internal/topscopes"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// maxListed is the maximum number of blockers in the attribute swansong.blockers.
const maxListed = 10

// Trace records the drain of s as a span with the name "swansong.drain", with a tracer of tp. The
// span begins with the lame duck phase if s belongs to a [graceful.Process], otherwise at the stop.
// It ends when s is complete. It has events for the phases lame_duck, soft and hard, and for
// granted extensions. Each event has the attributes
//
//	swansong.cause     why the phase was entered
//	swansong.guards    how many guards were held
//	swansong.blockers  the first ten of them by scope, such as "app/http ×2"
//
// The span has the attribute swansong.outcome: clean, forced or abandoned.
//
// Call end before tp is shut down, when the program no longer waits for s. If s is complete, end
// waits until the span has ended. If s is stopped but not complete, end ends the span with the
// outcome abandoned and an error that lists the guards. If s was not stopped there is no span.
// Further calls of end do nothing.
func Trace(s *ctxshutdown.Swansong, tp trace.TracerProvider) (end func(), err error) {
	switch {
	case s == nil:
		return nil, errors.New("oteldrain: Trace: nil scope; create one with ctxshutdown.New")
	case tp == nil:
		return nil, errors.New("oteldrain: Trace: nil trace.TracerProvider; use otel.GetTracerProvider() for the global one")
	}
	d := &drain{scope: s, tracer: tp.Tracer(scopeName), ended: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.follow()
	}()
	endOnce := sync.OnceFunc(func() { close(d.ended) })
	return func() {
		endOnce()
		<-done
	}, nil
}

// A drain records the drain of a scope. Everything except watch runs on one goroutine.
type drain struct {
	scope  *ctxshutdown.Swansong
	tracer trace.Tracer
	ended  chan struct{} // closed when the caller calls the function end, which Trace returned

	mu       sync.Mutex
	span     trace.Span
	extended time.Duration
}

// follow waits for the phases of the drain and records them.
func (d *drain) follow() {
	var lameDuck <-chan struct{}
	p, ok := graceful.FromContext(d.scope)
	if ok {
		lameDuck = p.LameDuck()
	}
	select {
	case <-lameDuck:
	case <-d.scope.Done():
	case <-d.ended:
		if d.scope.Err() == nil {
			return // the scope was not stopped, so there is no drain
		}
	}
	d.begin()
	if ok {
		defer p.Watch(d.watch)()
		if isClosed(lameDuck) {
			d.event("lame_duck", p.Status().Cause)
		}
	}
	select {
	case <-d.scope.Done():
	case <-d.ended:
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
	case <-d.ended:
	}
	// Work is also cancelled when the scope is complete, but then the cause is ErrShutdown.
	if cause := context.Cause(work); cause != nil && cause != ctxshutdown.ErrShutdown {
		outcome = "forced"
		d.event("hard", cause)
	}
	select {
	case <-complete:
	case <-d.ended:
	}
	if !isClosed(complete) {
		outcome = "abandoned"
	}
	d.end(outcome)
}

func (d *drain) begin() {
	// WithoutCancel keeps the values of the scope, such as the span of the program, and the context
	// does not end with the scope.
	_, span := d.tracer.Start(context.WithoutCancel(d.scope), "swansong.drain")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.span = span
}

func (d *drain) event(name string, cause error, more ...attribute.KeyValue) {
	d.span.AddEvent(name, trace.WithAttributes(append(blockers(d.scope.GuardReport()), append(more,
		attribute.String("swansong.cause", fmt.Sprint(cause)))...)...))
}

// watch records that the drain was extended, if st contains a new extension.
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
	for _, e := range entries[:min(maxListed, len(entries))] {
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

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
