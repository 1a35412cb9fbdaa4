package eventloop

// State is the state of a loop.
type State int32

const (
	Idle     State = iota // not started; the loop accepts nothing
	Starting              // started but not ready; the loop accepts nothing yet
	Running               // the loop accepts callbacks
	Stopping              // the loop accepts nothing more, and runs the callbacks that it has accepted
	Stopped               // the loop has ended and cannot be started again
)

func (st State) String() string {
	switch st {
	case Idle:
		return "Idle"
	case Starting:
		return "Starting"
	case Running:
		return "Running"
	case Stopping:
		return "Stopping"
	case Stopped:
		return "Stopped"
	}
	return "State(?)"
}
