package launcher

import (
	"context"
	"time"
)

// A Router is told who takes on work. Its calls come one at a time for a process, from any goroutine, and their contexts
// end after two seconds. One that fails, or takes longer, is an event of the kind [RouterError]. Add is then called again,
// and until it has succeeded nobody counts on the process; Remove is not, and who is to be stopped is. An Add that took too
// long, and an Add that failed, may be followed by a Remove, or by none.
type Router interface {
	Add(ctx context.Context, i Instance) error    // it is ready
	Remove(ctx context.Context, i Instance) error // it is about to be stopped, or has ended
}

// An Instance is a process as a router knows it.
type Instance struct {
	Group, ID string
	PID       int
	Socket    string // what {socket} is in the configuration
}

// routerPatience is how long a router may take.
const routerPatience = 2 * time.Second
