package lspconn

// State is the life-cycle state of a connection.
//
//	Initializing ──initialize is answered──▶ Ready ──Close, or its scope is stopped──▶ Closing ──reaped──▶ Closed
//	  │    │                                  │                                          ▲                  ▲
//	  │    └──────────Close, or its scope is stopped─────────────────────────────────────┘                  │
//	  │                                       │                                                             │
//	  └────────the server fails───────▶ Failed ◀──the server fails                                          │
//	                                       └──────────────────────reaped, and Close─────────────────────────┘
//
// There are no other transitions. The process of a failed connection is terminated and reaped at
// once, without a call of Close. The connection stays Failed until it is closed, so that every
// caller can see the failure.
type State int

const (
	Initializing State = iota // messages are accepted, and written once the server has answered initialize
	Ready                     // messages are accepted and written in order
	Failed                    // the connection has ended without being closed; the cause of the ConnError says why
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

// canBecome reports whether a connection in state s may change to state next.
func (s State) canBecome(next State) bool {
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
