package admin

import (
	"context"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/output"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// A Launcher carries out the orders of operators and answers their questions. Processes are given
// by their ids, and groups by their names. All methods may be called concurrently: by the
// goroutines of package grpc, one for each call.
//
// Package launcher implements it. It is an interface because package launcher imports this one, and
// so that this package can be tested without processes.
type Launcher interface {
	Process(id string) (*pb.ProcessStatus, error)

	// Wait waits until the process has ended or ctx ends.
	Wait(ctx context.Context, id string) (*pb.ProcessStatus, error)

	// StopProcess stops a process and does not wait for its end. If grace is 0, the process has the
	// configured grace period. The order holds even if the client that gave it disconnects, so
	// StopProcess takes no context. Roll and OrderGroup take none either; the functions that they
	// return take a context, which ends only the wait.
	StopProcess(id, reason string, grace time.Duration, noReplacement bool) error

	// CheckGroup returns an error if there is no such group.
	CheckGroup(name string) error

	// Health returns the health of a group, or of all groups if name is empty.
	Health(name string) ([]*pb.GroupHealth, error)

	// Roll begins, resumes or rolls back a roll, and returns a function that waits for its end. If
	// the group begins no roll, because it is a job or runs no process yet, there is nothing to
	// wait for, and the result instead says what the group does.
	Roll(group string, order pb.RollOrder, reason string) (instead string, wait func(context.Context) error, err error)

	// OrderGroup stops, starts or scales a group, and returns a function that waits until that is
	// done. Only an order to scale uses the number of processes.
	OrderGroup(group string, order pb.GroupOrder, processes int, reason string) (wait func(context.Context) error, err error)

	// Signal sends a signal to a process or to all processes of a group, and returns their ids.
	Signal(name string, sig syscall.Signal, reason string) (ids []string, err error)

	// Reread reads the configuration again, begins to apply it unless dry is true, and returns the
	// changes, the name of the file, and a function that waits until they have been applied.
	Reread(ctx context.Context, dry bool, reason string) (changes []string, file string, wait func(context.Context) error, err error)

	// Printed returns the last lines that a process, or the processes of a group, have printed, and
	// a channel of the lines that they print from now on. If name is empty, the lines are those of
	// all processes.
	Printed(name string, last int) (lines []output.Line, more <-chan output.Line, stop func(), err error)

	// Watch returns a function that waits for the next event. That function returns nil when its
	// context ends, and after the last event. In the end the caller calls the function stop.
	Watch() (next func(context.Context) *pb.Event, stop func())

	// DryRun asks processes what they would have to drain: one process, the processes of a group,
	// or, if both names are empty, all processes.
	DryRun(ctx context.Context, id, group string) ([]*pb.DryRun, error)

	// Notifier returns the process with this id, as the receiver of the notifications that the
	// process sends.
	Notifier(id string) (Process, error)

	// Upgrade executes another program in the place of the running launcher. The other program
	// takes over the processes. Upgrade returns only if that fails, or if dry is true: then it only
	// asks the other program whether it could take over, and returns the path of that program and
	// the number of processes.
	Upgrade(ctx context.Context, program, reason, id string, dry bool) (path string, processes int, err error)

	// Upgraded returns the path of the running program and the number of processes that it has
	// taken over in the upgrade with this id. If the upgrade failed after the handover, so that the
	// earlier program was executed again, the string failed is not empty and says why. If there was
	// no such upgrade, known is false.
	Upgraded(id string) (program string, processes int, failed string, known bool)

	// IsNotFound reports whether err says that there is no such process or group. That error is a
	// variable of package launcher, which this package cannot import.
	IsNotFound(err error) bool
}

// A Process is the part of the launcher that handles the notifications of one process. Its methods
// may be called concurrently.
type Process interface {
	// HasPID reports whether pid is that of the process or of a descendant of it.
	HasPID(pid int) bool

	// UID returns the uid of the user that the process runs as, and -1 if that is the launcher's
	// user.
	UID() int

	// Ready and ShutdownComplete return false if the process has ended.
	Ready(message string) bool
	ShutdownComplete(message, drainError string) bool

	// Serving records the TCP port at which the process serves the lifecycle protocol.
	Serving(ctx context.Context, port int32) error
}
