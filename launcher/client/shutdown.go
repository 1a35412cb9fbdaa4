package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// The limits of a shutdown that names none.
const (
	DefaultGrace = 3 * time.Second
	DefaultMax   = 10 * time.Second
)

// Causes of the end of the context of a drain, for [context.Cause].
var (
	ErrDeadline = errors.New("client: the maximum time for a shutdown is over")
	ErrSignal   = errors.New("client: a signal has cut the drain short")
)

// A Request is what asked the process to stop.
type Request struct {
	Reason     string
	Grace, Max time.Duration // from when it was received; zero means the default
	Received   time.Time
}

// Metrics is what a shutdown has still to deal with.
type Metrics struct {
	InFlight      int
	Connections   int
	BufferedBytes int64
}

// A ShutdownCoordinator answers whoever asks the process to stop, and runs the drain.
//
//	RUNNING ──the first Request──▶ REQUESTED ──Run──▶ DRAINING ──drain returns nil────▶ COMPLETE
//	                                                     │ ▲ └────drain returns an error──▶ BLOCKED, for good
//	                                               Block ▼ │ the last of them is over
//	                                                   BLOCKED
//
// All methods may be called concurrently.
type ShutdownCoordinator struct {
	id        string
	requested chan struct{}

	// Set before anything is served: who else has to know. None is called under mu.
	onRequest func(Request)
	onMore    func(time.Duration)
	onEnd     func(took time.Duration, message string, failure error)

	mu       sync.Mutex
	state    pb.ShutdownStatus_State
	request  Request
	scope    *ctxshutdown.Swansong
	metrics  Metrics
	message  string
	blocked  []string
	until    time.Time // until when more time was asked for
	requests int32     // for more time
	failure  string
	running  bool
	cut      context.CancelCauseFunc // ends the drain; nil before it has begun
	cutWhy   error                   // what ended it before it had begun
}

// NewShutdownCoordinator returns the coordinator of a process that the launcher knows by this id. [Serve] makes one, and
// serves it; made alone, it is for [Register].
func NewShutdownCoordinator(processID string) *ShutdownCoordinator {
	return &ShutdownCoordinator{id: processID, requested: make(chan struct{})}
}

// Request asks the process to stop. The first request counts; it returns that one, and whether it was this.
// When Request returns, Requested is closed and readiness is DRAINING.
func (c *ShutdownCoordinator) Request(r Request) (Request, bool) {
	if r.Grace <= 0 {
		r.Grace = DefaultGrace
	}
	if r.Max <= 0 {
		r.Max = DefaultMax
	}
	r.Grace = min(r.Grace, r.Max)
	r.Received = time.Now()

	c.mu.Lock()
	if c.state != pb.ShutdownStatus_RUNNING {
		r = c.request
		c.mu.Unlock()
		<-c.requested
		return r, false
	}
	c.state, c.request = pb.ShutdownStatus_SHUTDOWN_REQUESTED, r
	c.mu.Unlock()
	if c.onRequest != nil {
		c.onRequest(r)
	}
	close(c.requested)
	return r, true
}

// Requested returns a channel that is closed when the process has been asked to stop.
func (c *ShutdownCoordinator) Requested() <-chan struct{} { return c.requested }

// Run waits until the process is asked to stop, calls drain, and returns what that returned, in an error that names the
// reason. The context of drain derives from ctx, and ends with [ErrDeadline] at the maximum of the request and with
// [ErrSignal] when a signal comes while it drains. If ctx ends before the process is asked to stop, Run returns its cause
// without a drain.
//
// When Run returns, the launcher has been told, or could not be within a second. What is left is to exit: with a code other
// than 0 if it returned an error, as [ExitCode] has it. Run can be called once.
//
// A panic in drain reaches the caller of Run, after the launcher has been told that the drain has failed.
func (c *ShutdownCoordinator) Run(ctx context.Context, drain func(context.Context) error) error {
	if ctx == nil || drain == nil {
		panic("client: Run with a nil context or a nil function")
	}
	c.mu.Lock()
	again := c.running
	c.running = true
	c.mu.Unlock()
	if again {
		return errors.New("client: Run: another Run is under way or over; a process drains once")
	}
	select {
	case <-c.requested:
	default:
		select {
		case <-c.requested:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}

	c.mu.Lock()
	r := c.request
	ctx, cut := context.WithCancelCause(ctx)
	c.cut = cut
	if c.cutWhy != nil {
		cut(c.cutWhy)
	}
	c.state = pb.ShutdownStatus_SHUTDOWN_DRAINING
	c.mu.Unlock()
	defer cut(nil)
	ctx, cancel := context.WithDeadlineCause(ctx, r.Received.Add(r.Max), ErrDeadline)
	defer cancel()

	returned := false
	defer func() {
		if !returned {
			c.end(r, errNoReturn, errNoReturn.Error())
		}
	}()
	err, failure := drain(ctx), ""
	if err != nil {
		failure = cmp.Or(err.Error(), "the drain has failed")
	}
	returned = true
	c.end(r, err, failure)
	if err != nil {
		return fmt.Errorf("client: the drain (%s) has failed: %w", cmp.Or(r.Reason, "no reason given"), err)
	}
	return nil
}

var errNoReturn = errors.New("panic in the drain, or a runtime.Goexit: it has not returned")

// end says what has come of the drain.
func (c *ShutdownCoordinator) end(r Request, err error, failure string) {
	c.mu.Lock()
	if err == nil {
		c.state, c.blocked, c.message = pb.ShutdownStatus_SHUTDOWN_COMPLETE, nil, "drained"
	} else {
		c.state, c.failure = pb.ShutdownStatus_SHUTDOWN_BLOCKED, failure
		c.message = c.failure
	}
	message := c.message
	c.mu.Unlock()
	if c.onEnd != nil {
		c.onEnd(time.Since(r.Received), message, err)
	}
}

// Cut ends the context of the drain with this cause, now or as soon as there is one.
func (c *ShutdownCoordinator) Cut(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cutWhy == nil {
		c.cutWhy = cause
	}
	if c.cut != nil {
		c.cut(cause)
	}
}

// Track has the guards of a scope be reported as what is in flight, and who holds them as what blocks.
func (c *ShutdownCoordinator) Track(s *ctxshutdown.Swansong) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scope = s
}

// SetMetrics says what a shutdown has, or would have, to deal with. Guards of a tracked scope are added.
func (c *ShutdownCoordinator) SetMetrics(m Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metrics = m
}

// SetMessage is for people who watch the drain.
func (c *ShutdownCoordinator) SetMessage(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.message = message
}

// Block says that the drain waits for something outside of the process, such as "flush to the broker", until the function
// that it returns is called. That may happen more than once.
func (c *ShutdownCoordinator) Block(operation string) (over func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked = append(c.blocked, operation)
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if i := slices.Index(c.blocked, operation); i >= 0 {
			c.blocked = slices.Delete(c.blocked, i, i+1)
		}
	})
}

// RequestMoreTime asks for this long from now, whatever was asked before. The launcher grants it up to the maximum of the
// shutdown; beyond that, the context of the drain has ended.
func (c *ShutdownCoordinator) RequestMoreTime(d time.Duration) {
	if d <= 0 {
		return
	}
	c.mu.Lock()
	c.until = time.Now().Add(d)
	c.requests++
	c.mu.Unlock()
	if c.onMore != nil {
		c.onMore(d)
	}
}

// shown is how many blocking operations are named: the status is asked for twice a second.
const shown = 10

func (c *ShutdownCoordinator) status() *pb.ShutdownStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &pb.ShutdownMetrics{
		InFlightRequests:   clamp(c.metrics.InFlight),
		OpenConnections:    clamp(c.metrics.Connections),
		BufferedBytes:      c.metrics.BufferedBytes,
		BlockingOperations: slices.Clone(c.blocked[:min(shown, len(c.blocked))]),
	}
	if c.scope != nil {
		report := c.scope.GuardReport()
		m.InFlightRequests = clamp(c.metrics.InFlight + report.Count())
		for _, e := range report.Entries() {
			if len(m.BlockingOperations) == shown {
				break
			}
			m.BlockingOperations = append(m.BlockingOperations, blocker(e))
		}
	}
	st := &pb.ShutdownStatus{State: c.state, Message: c.message, Metrics: m, DrainError: c.failure, MoreTimeRequests: c.requests}
	if c.state == pb.ShutdownStatus_SHUTDOWN_DRAINING && len(c.blocked) > 0 {
		st.State = pb.ShutdownStatus_SHUTDOWN_BLOCKED
	}
	if left := time.Until(c.until); left > 0 && c.state != pb.ShutdownStatus_SHUTDOWN_COMPLETE {
		st.NeedMoreTime, st.AdditionalSeconds, st.AdditionalMs = true, seconds(left), millis(left)
	}
	return st
}

func blocker(e ctxshutdown.GuardEntry) string {
	s := fmt.Sprintf("%s ×%d", cmp.Or(e.Path, "(unnamed)"), e.Count)
	if e.Site != "" {
		s += fmt.Sprintf(" at %s for %v", e.Site, e.Oldest.Round(time.Millisecond))
	}
	return s
}

// ExitCode returns the code to exit with after Run: 0 for nil, 1 otherwise.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	return 1
}
