package histories_test

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/swansong-go/swansong/ctxshutdown"
)

type kind int

const (
	count        kind = iota // an acquisition in the subtree is counted
	returns                  // the acquisition returns
	uncount                  // a guard is released, and no longer counted
	signal                   // the scope is stopped
	refuse                   // a TryGuard of this scope is refused
	countBriefly             // a TryGuard in the subtree is counted before it is refused
	admit                    // a TryGuard of this scope is counted while the scope is running
	state                    // the method State returns the state of this scope
	request                  // a completion is requested
	poll                     // the channel of a completion is checked for being closed
)

func (k kind) String() string {
	return [...]string{"count", "return", "uncount", "signal", "refuse", "count briefly", "admit", "state", "request completion", "poll completion"}[k]
}

// An event is the part of an operation that takes effect in one scope.
type event struct {
	kind       kind
	scope      int
	state      ctxshutdown.State // the state that a call of State returned
	completion int               // index of the completion that was requested or polled, among those of the scope
	resolved   bool              // whether the completion was resolved when it was polled
}

// maxCompletions is the number of completions of one scope that a history may request.
const maxCompletions = 8

// A scope is the model of one scope. Values are compared with ==. A completion passes these states:
//
//	none ──request──▶ open ──the scope is complete──▶ due ──polled as resolved──▶ closed
//	                   ▲                               │
//	                   └───── an acquisition returns ──┴────────────────────────▶ closed
//
// A completion that is due is resolved by the goroutine that made the scope complete. An
// acquisition that happens in between waits until the completion is resolved, or until it can no
// longer be resolved. The model cannot know which, so it follows both.
type scope struct {
	stopped     bool
	guards      int
	acquiring   int // guards that are counted, but whose acquisition has not returned
	completions [maxCompletions]completion
}

type completion int

const (
	none completion = iota
	open
	due
	closed
)

func (s scope) isComplete() bool { return s.stopped && s.guards == 0 }

// withDue returns s. If s is complete, the completions that were open are due in the result.
func (s scope) withDue() scope {
	if s.isComplete() {
		for i := range s.completions {
			if s.completions[i] == open {
				s.completions[i] = due
			}
		}
	}
	return s
}

// step returns the possible states after e, none if e is not possible in s.
func (s scope) step(e event) []scope {
	if e.kind == admit {
		if s.stopped {
			return nil
		}
		e.kind = count
	}
	switch e.kind {
	case count:
		s.guards++
		s.acquiring++
	case countBriefly:
		s.guards++
	case returns:
		if s.acquiring == 0 {
			return nil
		}
		s.acquiring--
		return s.decide(0)
	case uncount:
		if s.guards == 0 {
			return nil
		}
		s.guards--
	case signal:
		s.stopped = true
	case refuse:
		if !s.stopped {
			return nil
		}
	case state:
		want := ctxshutdown.Running
		switch {
		case s.isComplete():
			want = ctxshutdown.Complete
		case s.stopped:
			want = ctxshutdown.ShuttingDown
		}
		if e.state != want {
			return nil
		}
	case request:
		s.completions[e.completion] = open
	case poll:
		switch c := s.completions[e.completion]; {
		case e.resolved && c == open, !e.resolved && c == closed:
			return nil
		case e.resolved:
			s.completions[e.completion] = closed
		}
	}
	return []scope{s.withDue()}
}

// decide returns the states in which the scope can be after an acquisition has returned. In these
// states, each completion from number i on that was due before is either open again or closed.
func (s scope) decide(i int) []scope {
	for ; i < maxCompletions && s.completions[i] != due; i++ {
	}
	if i == maxCompletions {
		return []scope{s.withDue()}
	}
	s.completions[i] = closed
	all := s.decide(i + 1)
	s.completions[i] = open
	return append(all, s.decide(i+1)...)
}

var model = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, len(parents))
		for _, op := range history {
			at := op.Input.(event).scope
			parts[at] = append(parts[at], op)
		}
		return parts
	},
	Init: func() []any { return []any{scope{}} },
	Step: func(from, input, _ any) (next []any) {
		for _, s := range from.(scope).step(input.(event)) {
			next = append(next, s)
		}
		return next
	},
	Equal: func(a, b any) bool { return a.(scope) == b.(scope) },
}).ToModel()

// describe returns a line for a recorded operation, with its times on the clock of the history.
func describe(op porcupine.Operation) string {
	e := op.Input.(event)
	text := fmt.Sprintf("%4d to %4d: goroutine %d, scope %d: %v", op.Call, op.Return, op.ClientId, e.scope, e.kind)
	switch e.kind {
	case state:
		text += " " + e.state.String()
	case request:
		text += fmt.Sprintf(" %d", e.completion)
	case poll:
		text += fmt.Sprintf(" %d: resolved is %v", e.completion, e.resolved)
	}
	return text
}
