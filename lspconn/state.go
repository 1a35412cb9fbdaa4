package lspconn

// State is what a connection is doing.
//
//	Initializing ──initialize is answered──▶ Ready ──Close, or its scope is stopped──▶ Closing ──reaped──▶ Closed
//	  │    │                                  │                                          ▲                  ▲
//	  │    └──────────Close, or its scope is stopped─────────────────────────────────────┘                  │
//	  │                                       │                                                             │
//	  └────────the server fails───────▶ Failed ◀──the server fails                                          │
//	                                       └──────────────────────reaped, and Close─────────────────────────┘
//
// There are no others. A connection that fails is terminated and reaped at once, nobody has to ask for it; it stays
// Failed for everybody to see until it is closed.
type State int

const (
	Initializing State = iota // messages are accepted, and wait until the server has answered initialize
	Ready                     // messages are accepted, and written in order
	Failed                    // the server has crashed, broken the protocol or refused initialize, or a callback has panicked
	Closing                   // messages are refused
	Closed                    // the process has been reaped
)

func (s State) String() string {
	switch s {
	case Initializing:
		return "Initializing"
	case Ready:
		return "Ready"
	case Failed:
		return "Failed"
	case Closing:
		return "Closing"
	case Closed:
		return "Closed"
	}
	return "State(?)"
}

// may reports whether a connection may go from s to next.
func (s State) may(next State) bool {
	switch s {
	case Initializing:
		return next == Ready || next == Failed || next == Closing
	case Ready:
		return next == Failed || next == Closing
	case Failed, Closing:
		return next == Closed
	}
	return false
}
