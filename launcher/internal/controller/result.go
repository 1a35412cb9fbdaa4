package controller

import (
	"errors"
	"fmt"
	"strings"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// These errors refuse orders that are impossible while the group does something else. They and
// ErrSuperseded are documented in package launcher.
var (
	ErrStopped    = errors.New("launcher: the group was stopped, and has no processes until it is started")
	ErrNotPaused  = errors.New("launcher: no roll of the group is paused, so none can be resumed")
	ErrNoWayBack  = errors.New("launcher: the roll cannot be rolled back, because the configuration of processes that an earlier launcher started is not known; roll to a configuration instead")
	ErrNotRolling = errors.New("launcher: no roll of the group is under way or paused, so none can be rolled back")
)

// ErrSuperseded is the cause of the [*RollError] of a roll that a newer order has superseded.
var ErrSuperseded = errors.New("launcher: the roll was superseded by a newer order")

// A Result is the result of an order that a caller can wait for without holding the mutex. For a
// roll, that is its end or its next pause.
type Result struct {
	done    chan struct{}
	err     error  // the result; must not be read before the channel done is closed
	instead string // what the group does instead of a roll, for the operator; empty if there is a roll
}

func newResult() *Result { return &Result{done: make(chan struct{})} }

// noRoll returns the Result of an order to roll a group if the order begins no roll. The Result is
// complete, so a caller that waits for it returns at once. otherAction says what the group does
// instead.
func noRoll(otherAction string) *Result {
	r := newResult()
	r.instead = otherAction
	r.set(nil)
	return r
}

func (r *Result) set(err error) {
	r.err = err
	close(r.done)
}

// Done returns a channel that is closed when the result is known.
func (r *Result) Done() <-chan struct{} { return r.done }

// Instead returns what the group does instead of a roll, or "" if the order has begun a roll.
func (r *Result) Instead() string { return r.instead }

// Err returns the result. It must not be called before the channel of Done is closed.
func (r *Result) Err() error { return r.err }

// A RollError says that a roll has not replaced all processes of a group.
type RollError struct {
	Group      string
	Process    string // id of the replacement that failed; empty if the roll failed for another reason
	RolledBack bool   // the processes have the earlier configuration again
	Degraded   bool   // the roll is over and has replaced some processes, but not all
	Cause      error
}

func (e *RollError) Error() string {
	switch {
	case errors.Is(e.Cause, ctxshutdown.ErrShutdown):
		return fmt.Sprintf("launcher: group %q: the roll was interrupted because the group is stopping", e.Group)
	case errors.Is(e.Cause, ErrSuperseded):
		return fmt.Sprintf("launcher: group %q: %s", e.Group, strings.TrimPrefix(e.Cause.Error(), "launcher: "))
	}
	s := fmt.Sprintf("launcher: group %q: the roll has failed: %v", e.Group, roll.Failure{Instance: e.Process, Cause: e.Cause})
	switch {
	case e.RolledBack:
		return s + "; it has been rolled back"
	case e.Degraded:
		return s + "; it went on without those that failed"
	}
	return s + "; the processes that have not been replaced keep running"
}

func (e *RollError) Unwrap() error { return e.Cause }
