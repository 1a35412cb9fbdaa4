package client

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// Readiness says whether a process accepts work.
type Readiness int

const (
	Starting  Readiness = iota // the process initializes itself
	Warming                    // the process connects to services that it depends on
	Ready                      // the process accepts work
	Draining                   // the process was asked to stop, and accepts no more work. [ShutdownCoordinator] sets this state
	Unhealthy                  // the process cannot work, and is to be replaced
)

func (r Readiness) String() string {
	switch r {
	case Starting:
		return "STARTING"
	case Warming:
		return "WARMING"
	case Ready:
		return "READY"
	case Draining:
		return "DRAINING"
	case Unhealthy:
		return "UNHEALTHY"
	}
	return "Readiness(?)"
}

// A ReadinessCoordinator reports whether the process is ready. It begins as Starting. All methods
// may be called concurrently.
type ReadinessCoordinator struct {
	id       string
	onChange func(r Readiness, message string) // set before the protocol is served; called once for each change, in the order of the changes
	onPanic  func(check string, value any, stack []byte)

	mu       sync.Mutex
	set      Readiness
	message  string
	reported Readiness // the state that onChange was last called with
	checks   map[string]func() bool
	panicked map[string]bool // checks that have panicked; only the first panic of a check is reported
}

// NewReadinessCoordinator returns the coordinator of the process with this id. [Serve] calls it for
// its [Lifecycle].
func NewReadinessCoordinator(processID string) *ReadinessCoordinator {
	return &ReadinessCoordinator{id: processID, checks: map[string]func() bool{}, panicked: map[string]bool{}}
}

// Set sets the readiness. The process counts as Ready once all checks pass. After Draining, Set has
// no effect.
func (c *ReadinessCoordinator) Set(r Readiness, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set == Draining {
		return
	}
	c.set, c.message = r, message
	c.evaluate()
}

// Check adds a check that must pass for the process to be Ready. The protocol has fields for
// [CheckServer], [CheckConnected] and [CheckWarmed]; other names are reported as custom checks. The
// function f is called whenever the readiness is requested, and by a [Lifecycle] once a second
// while Ready is set. It is never called concurrently, and must return quickly. If f panics, the
// check has not passed: the readiness message says so, and the first panic is logged.
func (c *ReadinessCoordinator) Check(name string, f func() bool) {
	if f == nil {
		panic("client: Check with a nil function")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks[name] = f
	delete(c.panicked, name)
}

// The results of checks with these names are in fields of their own in the readiness response. The
// results of all other checks are in its list of custom checks.
const (
	CheckServer    = "grpc server"
	CheckConnected = "backend connected"
	CheckWarmed    = "backend warmed"
)

// State runs the checks, and returns the readiness.
func (c *ReadinessCoordinator) State() Readiness {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, _, _ := c.evaluate()
	return r
}

// refresh runs the checks, and reports a change of the readiness.
func (c *ReadinessCoordinator) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set == Ready { // otherwise the program has set another state, which the checks do not change
		c.evaluate()
	}
}

// evaluate runs the checks, and reports a change of the readiness. The caller holds c.mu.
func (c *ReadinessCoordinator) evaluate() (r Readiness, message string, passed map[string]bool) {
	r, message, passed = c.set, c.message, map[string]bool{}
	var failed []string
	for _, name := range slices.Sorted(maps.Keys(c.checks)) {
		ok := false
		value, stack := callSafely(func() { ok = c.checks[name]() })
		if passed[name] = ok && value == nil; passed[name] {
			continue
		}
		if value != nil {
			failed = append(failed, fmt.Sprintf("%s (panic: %v)", name, value))
			if !c.panicked[name] && c.onPanic != nil { // log only the first panic, because the check runs every second
				c.onPanic(name, value, stack)
			}
			c.panicked[name] = true
		} else {
			failed = append(failed, name)
		}
	}
	if r == Ready && len(failed) > 0 {
		message = "failing checks: " + strings.Join(failed, ", ")
		if r = Warming; c.reported == Ready || c.reported == Unhealthy {
			r = Unhealthy
		}
	}
	if r != c.reported {
		c.reported = r
		if c.onChange != nil {
			c.onChange(r, message)
		}
	}
	return r, message, passed
}

func (c *ReadinessCoordinator) response() *pb.ReadinessResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, message, passed := c.evaluate()
	checks := &pb.ReadinessChecks{GrpcServerReady: true, BackendConnected: true, BackendWarmed: true, CustomChecks: map[string]bool{}}
	for name, ok := range passed {
		switch name {
		case CheckServer:
			checks.GrpcServerReady = ok
		case CheckConnected:
			checks.BackendConnected = ok
		case CheckWarmed:
			checks.BackendWarmed = ok
		default:
			checks.CustomChecks[name] = ok
		}
	}
	return &pb.ReadinessResponse{State: pb.ReadinessResponse_ReadinessState(r), Message: message, Checks: checks}
}
