package histories_test

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/swansong-go/swansong/ctxshutdown"
)

type kind int

const (
	count   kind = iota // a guard, here or below
	passed              // that guard is about to be returned
	uncount             // a release
	signal              // the scope is told to stop
	refuse              // a TryGuard of the scope itself
	flicker             // of a guard that was refused: counted, for a moment
	admit               // a TryGuard of the scope itself: count, while it is running
	state               // a look
	ask                 // for a completion
	look                // at a completion
)

func (k kind) String() string {
	return [...]string{"count", "passed", "uncount", "signal", "refuse", "flicker", "admit", "state", "ask", "look"}[k]
}

// An event is one part, at one scope, of what a goroutine did.
type event struct {
	kind       kind
	scope      int
	state      ctxshutdown.State // that a look has seen
	completion int               // which
	resolved   bool              // that completion, when it was looked at
}

// most is how many completions of one scope a history may ask for.
const most = 8

// A scope is what the model knows of one. It is compared by ==.
//
//	(none) ──ask──▶ open ──the scope is complete──▶ due ──seen resolved──▶ closed
//	                 ▲                               │
//	                 └──── a guard was returned ─────┴──────────────────▶ closed
//
// A completion that is due is resolved by whoever made the scope complete, on its way. A guard that comes in between waits
// until that is done or cannot be any more; which of both, nobody knows.
type scope struct {
	stopped bool
	guards  int
	passing int // guards that are counted and not passed
	is      [most]completion
}

type completion int

const (
	none completion = iota
	open
	due
	closed
)

func (s scope) complete() bool { return s.stopped && s.guards == 0 }

func (s scope) settled() scope {
	if s.complete() {
		for i := range s.is {
			if s.is[i] == open {
				s.is[i] = due
			}
		}
	}
	return s
}

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
		s.passing++
	case flicker:
		s.guards++
	case passed:
		if s.passing == 0 {
			return nil
		}
		s.passing--
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
		case s.complete():
			want = ctxshutdown.Complete
		case s.stopped:
			want = ctxshutdown.ShuttingDown
		}
		if e.state != want {
			return nil
		}
	case ask:
		s.is[e.completion] = open
	case look:
		switch is := s.is[e.completion]; {
		case e.resolved && is == open, !e.resolved && is == closed:
			return nil
		case e.resolved:
			s.is[e.completion] = closed
		}
	}
	return []scope{s.settled()}
}

// decide returns what may have become of the completions from the i-th on that were due when a guard passed.
func (s scope) decide(i int) []scope {
	for ; i < most && s.is[i] != due; i++ {
	}
	if i == most {
		return []scope{s.settled()}
	}
	s.is[i] = closed
	all := s.decide(i + 1)
	s.is[i] = open
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

func describe(op porcupine.Operation) string {
	e := op.Input.(event)
	text := fmt.Sprintf("%4d to %4d: goroutine %d, scope %d: %v", op.Call, op.Return, op.ClientId, e.scope, e.kind)
	switch e.kind {
	case state:
		text += " " + e.state.String()
	case ask:
		text += fmt.Sprintf(" %d", e.completion)
	case look:
		text += fmt.Sprintf(" %d: %v", e.completion, e.resolved)
	}
	return text
}
