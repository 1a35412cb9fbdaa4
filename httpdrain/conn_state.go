package httpdrain

import (
	"time"

	"github.com/swansong-go/swansong/httpdrain/internal/wire"
)

// While the server drains, a client may pause for headerTimeout in the middle of a request's
// header, and has maxHeaderTime to complete it. Without these limits, a client that sends half a
// header, or a line a second, would delay the drain until Force.
const (
	headerTimeout = 2 * time.Second
	maxHeaderTime = 3 * headerTimeout
)

// waitSteps is the number of timers, one after another, with which the drain measures how long a
// connection has been quiet. A single timer would be wrong if the process is suspended, or starved
// on a busy machine, for longer than the linger: the timer would expire before the process has read
// what arrived meanwhile. With several timers, a suspension counts as one step at most.
const waitSteps = 5

// endReadsInterval is how long the drain waits for the server to close a connection whose read the
// drain has ended. Then the drain ends the read again, because the server might have lifted the
// read deadline.
const endReadsInterval = 100 * time.Millisecond

// A phase is what the server is doing with a connection.
type phase uint8

const (
	phaseReading  phase = iota // the server waits for a request, or reads its header
	phaseServing               // this phase lasts from the end of a request's header until the response is written
	phaseHijacked              // this phase lasts from Hijack until the handler closes the connection
	phaseClosed
)

// A connState decides when and how the drain ends a connection. It is a state machine without side
// effects: step takes an event and returns the actions that conn must carry out. It uses no clock,
// no lock and no socket.
//
//	          header complete            Hijack
//	reading ──────────────────▶ serving ─────────▶ hijacked
//	   ▲ │                        │  │                │
//	   │ │     response written   │  │                │ closed by the hijacker, or by Force
//	   └─┼────────────────────────┘  │                │
//	     └───────────────────────────┴────────────────┴────▶ closed
//
// What the drain does in each phase:
//
//	reading, no byte of a request   ends the connection after the linger; on HTTP/1 only once the
//	                                client has sent no request on any connection for clientQuiet; on
//	                                HTTP/2 it sends the second GOAWAY first, and waits for another
//	                                linger
//	reading, part of a header       ends the connection when the client has paused for headerTimeout
//	serving                         waits; the response says Connection: close, and on HTTP/2 the
//	                                first GOAWAY is sent at once
//	hijacked                        waits; the handler learns of the stop from its scope
//	closed                          waits for handlers of HTTP/2 that still run
//
// The server's own states ([http.ConnState]) do not suffice: for the server, a connection is idle
// until the header of a request is complete. So connState watches the bytes. On HTTP/1, a request
// has begun if bytes were read after the last write. Under TLS the bytes are encrypted, but after
// the handshake the same rule holds. On HTTP/2 it does not, because frames are exchanged without a
// request. There only the number of requests counts. The first GOAWAY makes the client open no new
// streams (see http2.go). The second one, which refuses what arrives later, follows when the client
// has confirmed the first, and the connection is quiet.
type connState struct {
	linger time.Duration // how long the drain keeps a quiet connection; set before eventDrain

	phase    phase
	hijacked bool // set by Hijack, and still set after the connection is closed
	http2    bool // the connection is HTTP/2; set before the first frame is read or, if httpdrain learns it later, with the first request
	preface  bool // the server has read the client's HTTP/2 connection preface
	handlers int  // number of running handlers
	streams  int  // number of running handlers that serve an event stream of the Debug page; the drain does not wait for them
	role     role // what the drain waits for on the connection

	unanswered      bool      // the server has read bytes of a request since it last wrote
	unansweredSince time.Time // when the drain first saw unanswered bytes; zero before that
	inHandshake     bool      // the connection uses TLS and has had no request yet
	handshake       wire.Handshake

	draining         bool
	due              time.Time     // when the timer fires; zero if the timer is stopped
	interval         time.Duration // duration of the timer
	intervals        int           // how often the timer must fire again before the connection is ended
	readsEnded       bool          // the drain has ended the server's read by a deadline in the past
	incompleteSince  time.Time     // when the header began, if it was incomplete when the drain ended the read; else zero
	closeAnnounced   bool          // a response says Connection: close, or the second GOAWAY was requested
	canSendGoAway    bool          // the connection is HTTP/2, and not served by a TLSNextProto function of the user's
	announced        bool          // the first GOAWAY was requested
	announcedAt      time.Time     // when the first GOAWAY was requested, or when the drain began if that was later
	confirmed        bool          // the client has confirmed that it has received the first GOAWAY
	wrote            bool          // the server has written to the connection; reset when httpdrain requests the second GOAWAY
	hasResponseGuard bool          // a guard is held until the response is written
}

// A role says what the drain waits for on a connection. The drain counts the connections of each
// role.
type role uint8

const (
	roleServed   role = iota // the drain waits for the server to close the connection
	roleHijacked             // the drain waits for the hijacker to close the connection
	roleStream               // only event streams of the Debug page are left on the connection; the drain closes it last
	roleGone                 // the connection is closed, and none of its handlers is running
)

type connEventKind uint8

const (
	eventDrain         connEventKind = iota // the server has begun to drain
	eventNew                                // http.StateNew
	eventActive                             // http.StateActive
	eventIdle                               // http.StateIdle
	eventHijack                             // http.StateHijacked
	eventClose                              // http.StateClosed
	eventHijackerClose                      // the hijacker or the drain has closed the connection
	eventHTTP2                              // the connection will speak HTTP/2
	eventRead                               // the server has read data
	eventUnread                             // the socket has data, although the drain has ended the read
	eventWrite                              // the server is about to write
	eventHandlerStart                       // a handler is about to run
	eventHandlerEnd                         // a handler has returned
	eventStream                             // a handler has excluded its request from the drain
	eventLastResponse                       // a response will say Connection: close
	eventTimer                              // the timer of the connection has fired
	eventListed                             // the incomplete header has been added to the CutError
	eventConfirm                            // the client has confirmed the first GOAWAY
)

// A connEvent is something that happened to a connection.
type connEvent struct {
	kind          connEventKind
	now           time.Time // the time of the event; zero unless the server drains
	data          []byte    // set for eventRead: the data that was read
	canSendGoAway bool      // set for eventHTTP2 if httpdrain serves the connection, and so can send the first GOAWAY
	stream        bool      // set for eventHandlerEnd if the handler served an event stream of the Debug page

	// keep is set for eventTimer: for how long the drain does not close the connection although it
	// is quiet, because its client sends requests on other connections.
	keep time.Duration
}

// connActions is a set of actions. conn carries them out in the order of the constants.
type connActions uint16

const (
	holdHijacked    connActions = 1 << iota // acquire a guard that is held until the hijacked connection is closed
	releaseHijacked                         // release the guard that holdHijacked has acquired
	holdResponse                            // acquire a guard that is held until the response is written
	releaseResponse                         // release the guard that holdResponse has acquired
	revealDeadline                          // set on the socket the deadline that readDeadline has so far only recorded
	resumeReads                             // lift the deadline that ended the server's read
	endReads                                // end the server's read by a deadline in the past, so that the server closes the connection
	reportSilent                            // record that the drain closed the connection in the middle of a header
	announceGoAway                          // request the first GOAWAY
	sendGoAway                              // request the second GOAWAY
	setTimer                                // start the timer with the duration interval
	stopTimer
)

// step changes the state according to e, and returns the actions that conn must carry out.
func (s *connState) step(e connEvent) connActions {
	todo := s.apply(e) | s.updateResponseGuard()
	s.updateRole()
	return todo
}

func (s *connState) apply(e connEvent) connActions {
	switch e.kind {
	case eventDrain:
		s.draining, s.announcedAt = true, e.now
		return s.announce(e.now) | s.schedule(e.now)
	case eventNew:
		return s.schedule(e.now)
	case eventActive:
		s.phase, s.preface, s.inHandshake = phaseServing, s.http2, false
		return s.resume() | s.schedule(e.now) | s.goAway(e.now)
	case eventIdle:
		s.phase = phaseReading
		return s.schedule(e.now)
	case eventHijack:
		s.phase, s.hijacked = phaseHijacked, true
		return holdHijacked | revealDeadline | s.resume() | s.schedule(e.now)
	case eventClose:
		return s.onClose(e.now)
	case eventHijackerClose:
		if s.phase == phaseHijacked {
			s.phase = phaseClosed
			return releaseHijacked
		}
	case eventRead:
		return s.onRead(e)
	case eventUnread:
		return s.resume() | s.schedule(e.now)
	case eventWrite:
		return s.onWrite(e)
	case eventHandlerStart:
		s.handlers++
		s.incompleteSince = time.Time{}
		return s.goAway(e.now)
	case eventHandlerEnd:
		s.handlers--
		if e.stream {
			s.streams--
		}
	case eventStream:
		s.streams++
	case eventTimer:
		return s.onTimer(e)
	case eventListed:
		s.incompleteSince = time.Time{}
	case eventHTTP2, eventConfirm, eventLastResponse:
		return s.applyHTTP2(e)
	}
	return 0
}

func (s *connState) onClose(now time.Time) connActions {
	s.phase = phaseClosed
	if !s.incompleteSince.IsZero() {
		return reportSilent | s.schedule(now)
	}
	return s.schedule(now)
}

func (s *connState) onRead(e connEvent) connActions {
	if s.preface {
		return 0 // the data is HTTP/2 frames, which might not belong to a request
	}
	s.incompleteSince = time.Time{}
	if !s.unanswered {
		s.unanswered = !s.inHandshake || s.handshake.HasRequest(e.data)
	}
	if s.phase != phaseReading || !s.draining {
		return 0
	}
	return s.resume() | s.schedule(e.now)
}

// onWrite handles eventWrite, which is recorded before each write of the server. If it were
// recorded after the write, the server might have read the client's next request by then, and
// onWrite would take that request for answered.
func (s *connState) onWrite(e connEvent) connActions {
	// A write of the server answers no request if it belongs to the TLS handshake, or is the first
	// SETTINGS frame of HTTP/2.
	if !s.inHandshake && s.http2 == s.preface {
		s.unanswered, s.unansweredSince = false, time.Time{}
	}
	if s.inHandshake && !s.http2 && s.draining && s.phase == phaseReading {
		// The drain closes the connection if the client sends nothing for too long. During the
		// handshake, count that time from this write of the server: before it the client could only
		// wait, perhaps for long, while the server computed its part of the handshake.
		return s.resume() | s.schedule(e.now)
	}
	if s.wrote {
		return 0
	}
	s.wrote = true
	if s.http2 {
		return s.schedule(e.now) // this write may be the GOAWAY, after which the linger begins (see WithLinger)
	}
	return 0
}

// schedule starts the timer after which the drain ends the connection if nothing happens on it. It
// stops the timer instead if the server is not waiting for a request.
func (s *connState) schedule(now time.Time) connActions {
	if !s.draining {
		return 0
	}
	if s.phase != phaseReading {
		s.due = time.Time{}
		return stopTimer
	}
	wait := s.quietTime(now)
	s.intervals, s.interval = waitSteps, wait/waitSteps
	return s.startTimer(now)
}

// quietTime returns how long the connection must be quiet before the drain takes the next step to
// end it.
func (s *connState) quietTime(now time.Time) time.Duration {
	switch {
	case s.confirmed:
		return min(s.linger, defaultLinger) // leaves time for a stream that the client opened before it received the GOAWAY
	case s.announced && !s.closeAnnounced:
		return max(headerTimeout, s.linger)
	case s.isInHeader():
		if s.unansweredSince.IsZero() {
			s.unansweredSince = now
		}
		left := s.unansweredSince.Add(max(maxHeaderTime, s.linger)).Sub(now)
		return max(0, min(left, max(headerTimeout, s.linger)))
	}
	return s.linger
}

// isInHeader reports whether the client has begun a request's header or a TLS handshake.
func (s *connState) isInHeader() bool {
	return !s.preface && (s.unanswered || s.inHandshake && s.handshake.IsUnderWay())
}

func (s *connState) startTimer(now time.Time) connActions {
	s.due = now.Add(s.interval)
	return setTimer
}

func (s *connState) onTimer(e connEvent) connActions {
	now := e.now
	switch {
	case s.due.IsZero() || now.Before(s.due):
		return 0 // ignore this event: the timer was stopped or started again after it had fired
	case s.intervals > 1:
		s.intervals--
		return s.startTimer(now)
	case e.keep > 0 && !s.readsEnded && !s.http2 && !s.isInHeader():
		s.intervals, s.interval = waitSteps, e.keep/waitSteps
		return s.startTimer(now)
	case s.announced && !s.closeAnnounced:
		s.closeAnnounced, s.wrote = true, false
		// When the server has written the GOAWAY, onWrite starts the timer again. If the server
		// cannot write it, because the client does not read, the timer that is started here
		// expires.
		s.intervals, s.interval = 1, headerTimeout
		return sendGoAway | s.startTimer(now)
	}
	if s.unanswered && !s.http2 {
		s.incompleteSince = s.unansweredSince
	}
	s.readsEnded = true
	s.interval = endReadsInterval
	return endReads | s.startTimer(now)
}

// resume is called when a request has arrived. If the drain has ended the server's reads, resume
// lets the server read again.
func (s *connState) resume() connActions {
	if !s.readsEnded {
		return 0
	}
	s.readsEnded = false
	return resumeReads
}

// updateResponseGuard makes the connection hold a guard while the server writes a response whose
// handler has returned. It does so only during the drain: before the drain no code waits for
// guards, and each request would need a second one.
func (s *connState) updateResponseGuard() connActions {
	needed, held := s.draining && s.phase == phaseServing && s.handlers == 0, s.hasResponseGuard
	s.hasResponseGuard = needed
	switch {
	case needed && !held:
		return holdResponse
	case held && !needed:
		return releaseResponse
	}
	return 0
}

// updateRole sets the field role, which it derives from the phase and from the running handlers.
func (s *connState) updateRole() {
	switch {
	case s.phase == phaseClosed && s.handlers == 0:
		s.role = roleGone
	case s.streams > 0 && s.handlers == s.streams:
		s.role = roleStream
	case s.hijacked:
		s.role = roleHijacked
	default:
		s.role = roleServed
	}
}

// isBusy reports whether a handler is running or the connection is hijacked.
func (s *connState) isBusy() bool { return s.handlers > 0 || s.phase == phaseHijacked }

// hasUnknownRequest reports whether the client waits for the answer to a request whose handler has
// not been called. It must be called only if the connection's list of requests is empty.
func (s *connState) hasUnknownRequest() bool {
	switch s.phase {
	case phaseReading:
		return s.unanswered && !s.http2
	case phaseServing:
		return s.unanswered || s.http2
	}
	return false
}

// keepsRequest reports whether a request must stay in the connection's list of requests when its
// handler ends. If no other handler is running, the request stays until its response is written. On
// a hijacked connection, it stays until the connection is closed.
func (s *connState) keepsRequest() bool {
	return s.phase == phaseHijacked || s.phase == phaseServing && s.handlers == 1
}
