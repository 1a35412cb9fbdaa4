package client

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// Readiness is whether a process takes on work.
type Readiness int

const (
	Starting  Readiness = iota // initializing
	Warming                    // connecting to what it needs
	Ready                      // takes on work
	Draining                   // asked to stop; takes on none. [ShutdownCoordinator] says so, and it is for good
	Unhealthy                  // cannot work
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

// A ReadinessCoordinator answers whoever asks whether the process is ready. It begins as Starting. All methods may be
// called concurrently.
type ReadinessCoordinator struct {
	id       string
	onChange func(r Readiness, message string) // set before anything is served; called in the order of the changes
	onPanic  func(check string, value any, stack []byte)

	mu       sync.Mutex
	set      Readiness
	message  string
	shown    Readiness
	checks   map[string]func() bool
	panicked map[string]bool // of which it has been told
}

// NewReadinessCoordinator returns the coordinator of a process that the launcher knows by this id. [Serve] makes one.
func NewReadinessCoordinator(processID string) *ReadinessCoordinator {
	return &ReadinessCoordinator{id: processID, checks: map[string]func() bool{}, panicked: map[string]bool{}}
}

// Set says how the process is. Ready counts once all checks pass. After Draining nothing changes any more.
func (c *ReadinessCoordinator) Set(r Readiness, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set == Draining {
		return
	}
	c.set, c.message = r, message
	c.look()
}

// Check adds a check that has to pass for the process to be Ready: those named "grpc server", "backend connected" and
// "backend warmed" are told by the names that the protocol has for them, all others as custom checks. f is called when
// somebody asks, and by a [Lifecycle] once a second while Ready is set; one call at a time, and it must be quick. One that
// panics does not pass, and the message says so; the logger is told the first time.
func (c *ReadinessCoordinator) Check(name string, f func() bool) {
	if f == nil {
		panic("client: Check with a nil function")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks[name] = f
	delete(c.panicked, name)
}

// The checks that the protocol has names for.
const (
	CheckServer    = "grpc server"
	CheckConnected = "backend connected"
	CheckWarmed    = "backend warmed"
)

// State runs the checks, and returns how the process is.
func (c *ReadinessCoordinator) State() Readiness {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, _, _ := c.look()
	return r
}

// refresh runs the checks for those who are told of changes and do not ask.
func (c *ReadinessCoordinator) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set == Ready { // else no check counts
		c.look()
	}
}

// look runs the checks where they count, and tells of a change.
func (c *ReadinessCoordinator) look() (r Readiness, message string, passed map[string]bool) {
	r, message, passed = c.set, c.message, map[string]bool{}
	var failed []string
	for _, name := range slices.Sorted(maps.Keys(c.checks)) {
		ok := false
		value, stack := contain(func() { ok = c.checks[name]() })
		if passed[name] = ok && value == nil; passed[name] {
			continue
		}
		if value != nil {
			failed = append(failed, fmt.Sprintf("%s (panic: %v)", name, value))
			if !c.panicked[name] && c.onPanic != nil { // it is asked every second
				c.onPanic(name, value, stack)
			}
			c.panicked[name] = true
		} else {
			failed = append(failed, name)
		}
	}
	if r == Ready && len(failed) > 0 {
		message = "checks that do not pass: " + strings.Join(failed, ", ")
		if r = Warming; c.shown == Ready || c.shown == Unhealthy {
			r = Unhealthy
		}
	}
	if r != c.shown {
		c.shown = r
		if c.onChange != nil {
			c.onChange(r, message)
		}
	}
	return r, message, passed
}

func (c *ReadinessCoordinator) response() *pb.ReadinessResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, message, passed := c.look()
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
