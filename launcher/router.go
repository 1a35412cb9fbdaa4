package launcher

import (
	"context"

	"github.com/swansong-go/swansong/launcher/internal/process"
)

// A Router sends requests to processes. The launcher calls it with one call at a time for each
// process, from any goroutine. The context of a call ends after two seconds. A call that fails,
// panics or takes longer is an event of the kind [RouterError].
//
// A failed Add is repeated, and the process does not count as available before one has succeeded. A
// Remove may or may not follow a failed Add. A failed Remove is not repeated, and does not keep the
// process from being stopped.
type Router interface {
	Add(ctx context.Context, i Instance) error    // called when the process is ready
	Remove(ctx context.Context, i Instance) error // called when the process is about to be stopped, or has ended
}

// An Instance is a process as a [Router] knows it. Its fields are
//
//	Group, ID string
//	PID       int
//	Socket    string // the value of {socket} in the configuration
//	Port      int    // the value of {port} in the configuration; 0 if it is not used
type Instance = process.Instance
