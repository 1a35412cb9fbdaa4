package eventloop

// State is what a loop is doing.
type State int32

const (
	Idle     State = iota // not started: nothing is accepted
	Starting              // started, and not ready: nothing is accepted yet
	Running               // accepting
	Stopping              // accepting nothing, running what was accepted
	Stopped               // nothing runs any more; final
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
