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

// Default time limits of a shutdown, for requests that have none.
const (
	DefaultGrace = 3 * time.Second
	DefaultMax   = 10 * time.Second
)

// Causes of the end of a drain's context; see [context.Cause].
var (
	// ErrDeadline means that the drain has used up its time: Max of the [Request], its Grace if
	// that is enforced, or the additional time that the launcher has granted.
	ErrDeadline = errors.New("client: the time for the shutdown is over")
	ErrSignal   = errors.New("client: a signal ended the drain early")
)

// A Request asks the process to stop.
type Request struct {
	Reason     string
	Grace, Max time.Duration // counted from Received; zero means DefaultGrace and DefaultMax
	Received   time.Time

	// GraceEnforced says that the process is ended after Grace, unless it asks for more time.
	// Otherwise the process has Max, whether it asks or not.
	GraceEnforced bool
}

// Metrics describe the work that the process must still complete before it can exit.
type Metrics struct {
	InFlight      int
	Connections   int
	BufferedBytes int64
}

// A ShutdownCoordinator handles requests to stop the process, and runs the drain.
//
//	RUNNING ──the first Request──▶ REQUESTED ──Run──▶ DRAINING ──drain returns nil────▶ COMPLETE
//	                                                     │ ▲ └────drain returns an error──▶ BLOCKED, for good
//	                                               Block ▼ │ no operation blocks the drain any longer
//	                                                   BLOCKED
//
// BLOCKED tells the launcher that the process cannot exit yet: because of the operations that the
// process has named with Block, or because the drain has failed.
//
// All methods may be called concurrently.
type ShutdownCoordinator struct {
	id        string
	requested chan struct{}

	// Callbacks, set before the protocol is served, and called without mu.

	onRequest  func(Request)
	onMoreTime func(time.Duration)
	onEnd      func(took time.Duration, message string, failure error)

	mu               sync.Mutex
	state            pb.ShutdownStatus_State
	request          Request
	scope            *ctxshutdown.Swansong
	metrics          Metrics
	message          string
	blocked          []string
	moreTimeUntil    time.Time // the end of the additional time that the process has requested
	moreTimeRequests int32
	failure          string
	running          bool
	deadline         time.Time               // when the context of the drain ends; RequestMoreTime can move it, up to latest
	latest           time.Time               // when the maximum time of the shutdown is over
	deadlineTimer    *time.Timer             // cancels the context of the drain at the deadline; nil before the drain
	cut              context.CancelCauseFunc // cancels the context of the drain; nil before the drain
	cutCause         error                   // the cause passed to Cut before the drain began
}

// NewShutdownCoordinator returns the coordinator of the process with this id. [Serve] calls it and
// serves the coordinator. A program that serves the protocol itself passes the coordinator to
// [Register].
func NewShutdownCoordinator(processID string) *ShutdownCoordinator {
	return &ShutdownCoordinator{id: processID, requested: make(chan struct{})}
}

// Request asks the process to stop. Request returns the first request, and whether r was the first.
// When Request returns, the channel of Requested is closed and the readiness is DRAINING.
//
// Of a later request only Max counts: if it ends before the maximum of the earlier ones, it is the
// maximum from then on. That is how a launcher that is itself stopped says that less time is left.
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
		if latest := r.Received.Add(r.Max); latest.Before(c.latest) {
			c.latest = latest
			c.setDeadline(minTime(c.deadline, latest))
		}
		r = c.request
		c.mu.Unlock()
		<-c.requested
		return r, false
	}
	c.state, c.request = pb.ShutdownStatus_SHUTDOWN_REQUESTED, r
	c.latest = r.Received.Add(r.Max)
	c.deadline = c.latest
	if r.GraceEnforced {
		c.deadline = r.Received.Add(r.Grace)
	}
	c.mu.Unlock()
	if c.onRequest != nil {
		c.onRequest(r)
	}
	close(c.requested)
	return r, true
}

// Requested returns a channel that is closed when the process has been asked to stop.
func (c *ShutdownCoordinator) Requested() <-chan struct{} { return c.requested }

// Run waits until the process is asked to stop, and calls the function drain. It returns the error
// of drain, wrapped in one that names the reason of the request. The context of drain derives from
// ctx, and ends with [ErrDeadline] at its deadline and with [ErrSignal] at a signal after the
// request. If ctx ends before the process is asked to stop, Run returns its cause, and does not
// call drain.
//
// The Deadline of the context is the time at which the launcher ends the process: the maximum of
// the request, or the end of the grace period if that is enforced. The launcher can move the
// deadline: to a later time after [ShutdownCoordinator.RequestMoreTime], and to an earlier time
// when the launcher itself is stopped and has less time left. Deadline then returns the new time.
//
// Before Run returns, it notifies the launcher, for at most a second. The program then only has to
// exit, with the code that [ExitCode] returns. Run can be called once.
//
// A panic in drain reaches the caller of Run, after the launcher has been notified that the drain
// has failed.
func (c *ShutdownCoordinator) Run(ctx context.Context, drain func(context.Context) error) error {
	if ctx == nil || drain == nil {
		panic("client: Run with a nil context or a nil function")
	}
	c.mu.Lock()
	again := c.running
	c.running = true
	c.mu.Unlock()
	if again {
		return errors.New("client: Run has already been called; a process drains once")
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
	if c.cutCause != nil {
		cut(c.cutCause)
	}
	c.state = pb.ShutdownStatus_SHUTDOWN_DRAINING
	c.mu.Unlock()
	defer cut(nil)
	ctx, stop := c.withDeadline(ctx, cut)
	defer stop()

	returned := false
	defer func() {
		if !returned {
			c.end(r, errNoReturn, errNoReturn.Error())
		}
	}()
	err, failure := drain(ctx), ""
	if err != nil {
		failure = cmp.Or(err.Error(), "the drain failed")
	}
	returned = true
	c.end(r, err, failure)
	if err != nil {
		return fmt.Errorf("client: drain failed (%s): %w", cmp.Or(r.Reason, "no reason given"), err)
	}
	return nil
}

var errNoReturn = errors.New("the drain did not return: it panicked, or called runtime.Goexit")

// end records the result of the drain and reports it to the launcher.
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

// Cut cancels the context of the drain with this cause, at once or as soon as the drain begins.
func (c *ShutdownCoordinator) Cut(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cutCause == nil {
		c.cutCause = cause
	}
	if c.cut != nil {
		c.cut(cause)
	}
}

// Track reports the guards of a scope: their number as requests in flight, and their names as what
// blocks the shutdown.
func (c *ShutdownCoordinator) Track(s *ctxshutdown.Swansong) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scope = s
}

// SetMetrics sets the work that the process must complete in a shutdown, or would have to if it
// were asked to stop now. The guards of a tracked scope are added to that.
func (c *ShutdownCoordinator) SetMetrics(m Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metrics = m
}

// SetMessage sets the message that an operator sees with the status of the drain.
func (c *ShutdownCoordinator) SetMessage(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.message = message
}

// Block reports that the drain waits for an operation outside of the process, such as "flush to the
// broker". The operation counts as ended when the caller calls the function unblock. Calling
// unblock more than once has no further effect.
func (c *ShutdownCoordinator) Block(operation string) (unblock func()) {
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

// RequestMoreTime asks the launcher to let the drain continue for the duration d from now on. The
// request replaces earlier ones. The launcher grants it up to the maximum of the shutdown, at which
// time the context of the drain is cancelled.
//
// Where the grace period is not enforced, the drain has the maximum without asking; the launcher
// only counts and reports the request. Where it is enforced, the deadline of the context moves when
// the launcher has read the request, which it does at its next poll: by default every half second.
func (c *ShutdownCoordinator) RequestMoreTime(d time.Duration) {
	if d <= 0 {
		return
	}
	c.mu.Lock()
	c.moreTimeUntil = time.Now().Add(d)
	c.moreTimeRequests++
	c.mu.Unlock()
	if c.onMoreTime != nil {
		c.onMoreTime(d)
	}
}

// maxBlockers is the largest number of blocking operations that a status names. It is small because
// the launcher asks for the status twice a second.
const maxBlockers = 10

func (c *ShutdownCoordinator) status() *pb.ShutdownStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &pb.ShutdownMetrics{
		InFlightRequests:   clamp(c.metrics.InFlight),
		OpenConnections:    clamp(c.metrics.Connections),
		BufferedBytes:      c.metrics.BufferedBytes,
		BlockingOperations: slices.Clone(c.blocked[:min(maxBlockers, len(c.blocked))]),
	}
	if c.scope != nil {
		report := c.scope.GuardReport()
		m.InFlightRequests = clamp(c.metrics.InFlight + report.Count())
		for _, e := range report.Entries() {
			if len(m.BlockingOperations) == maxBlockers {
				break
			}
			m.BlockingOperations = append(m.BlockingOperations, blocker(e))
		}
	}
	st := &pb.ShutdownStatus{State: c.state, Message: c.message, Metrics: m, DrainError: c.failure, MoreTimeRequests: c.moreTimeRequests}
	if c.state == pb.ShutdownStatus_SHUTDOWN_DRAINING && len(c.blocked) > 0 {
		st.State = pb.ShutdownStatus_SHUTDOWN_BLOCKED
	}
	if left := time.Until(c.moreTimeUntil); left > 0 && c.state != pb.ShutdownStatus_SHUTDOWN_COMPLETE {
		st.NeedMoreTime, st.AdditionalSeconds, st.AdditionalMs = true, seconds(left), millis(left)
		// The launcher grants the requested time when it reads this answer, so the deadline moves
		// now.
		if until := minTime(c.moreTimeUntil, c.latest); until.After(c.deadline) {
			c.setDeadline(until)
		}
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

// ExitCode returns the exit code for the error of Run: 0 for nil, and 1 otherwise.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	return 1
}
