package httpdrain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/httpdrain/internal/wire"
)

var t0 = time.Unix(1_000_000, 0)

const testLinger = 100 * time.Millisecond

var actionNames = []string{"holdHijacked", "releaseHijacked", "holdResponse", "releaseResponse", "revealDeadline",
	"resumeReads", "endReads", "reportSilent", "announceGoAway", "sendGoAway", "setTimer", "stopTimer"}

func (a connActions) String() string {
	var names []string
	for i, name := range actionNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

var kindNames = map[string]connEvent{
	"drain":         {kind: eventDrain},
	"new":           {kind: eventNew},
	"active":        {kind: eventActive},
	"idle":          {kind: eventIdle},
	"hijack":        {kind: eventHijack},
	"close":         {kind: eventClose},
	"hijackerClose": {kind: eventHijackerClose},
	"http2":         {kind: eventHTTP2, canSendGoAway: true},
	"usersHTTP2":    {kind: eventHTTP2},
	"read":          {kind: eventRead, data: []byte("GET")},
	"readHello":     {kind: eventRead, data: []byte{wire.RecordHandshake, 3, 1, 0, 0}},
	"readCipher":    {kind: eventRead, data: []byte{wire.RecordChangeCipherSpec, 3, 3, 0, 0}},
	"readRecord":    {kind: eventRead, data: []byte{wire.RecordApplicationData, 3, 3, 0, 0}},
	"unread":        {kind: eventUnread},
	"write":         {kind: eventWrite},
	"handlerStart":  {kind: eventHandlerStart},
	"handlerEnd":    {kind: eventHandlerEnd},
	"streamEnd":     {kind: eventHandlerEnd, stream: true},
	"stream":        {kind: eventStream},
	"lastResponse":  {kind: eventLastResponse},
	"timer":         {kind: eventTimer},
	"keepTimer":     {kind: eventTimer, keep: time.Second}, // the client has sent a request on another connection
	"listed":        {kind: eventListed},
	"confirm":       {kind: eventConfirm},
}

// run passes the named events to s and returns the actions for the last event. Before each event
// "timer", the clock advances to the time at which the timer is due. At "wait", it advances by
// headerTimeout.
func run(s *connState, now *time.Time, events ...string) (todo connActions) {
	for _, name := range events {
		if name == "wait" {
			*now = now.Add(headerTimeout)
			continue
		}
		e, ok := kindNames[name]
		if !ok {
			panic("unknown event " + name)
		}
		if e.kind == eventTimer && !s.due.IsZero() {
			*now = s.due
		}
		e.now = *now
		todo = s.step(e)
	}
	return todo
}

func TestConnState_StepReturnsActionsForEvent(t *testing.T) {
	request := "read active handlerStart write handlerEnd idle"
	// the linger has waitSteps timers, and all but the last one have fired
	linger := strings.Repeat(" timer", waitSteps-1)
	for _, test := range []struct {
		name   string
		secure bool
		events string
		want   string // expected actions for the last event
		after  time.Duration
	}{
		{name: "new before the stop", events: "new", want: ""},
		{name: "quiet at the stop", events: "new drain", want: "setTimer"},
		{name: "part of the linger is over", events: "new drain timer", want: "setTimer", after: testLinger / waitSteps},
		{name: "the linger is over", events: "new drain timer" + linger, want: "endReads setTimer", after: testLinger},
		{name: "the client is active", events: "new drain timer timer timer timer keepTimer", want: "setTimer", after: testLinger},
		{name: "the client is no longer active", events: "new drain timer timer timer timer keepTimer timer" + linger, want: "endReads setTimer", after: testLinger + time.Second},
		{name: "the client is active again", events: "new drain timer" + linger + " keepTimer", want: "endReads setTimer", after: testLinger + endReadsInterval},
		{name: "half a header of an active client", events: "new read drain timer timer timer timer keepTimer", want: "endReads setTimer", after: headerTimeout},
		{name: "HTTP/2 of an active client", events: "new http2 read write active idle drain confirm timer timer timer timer keepTimer", want: "sendGoAway setTimer", after: testLinger},
		{name: "the server has not closed it", events: "new drain timer timer" + linger, want: "endReads setTimer", after: testLinger + endReadsInterval},
		{name: "closed", events: "new drain timer" + linger + " close", want: "stopTimer", after: testLinger},
		{name: "a request within the linger", events: "new drain timer read", want: "setTimer", after: testLinger / waitSteps},
		{name: "its header is complete", events: "new drain timer read active", want: "holdResponse stopTimer", after: testLinger / waitSteps},
		{name: "its handler starts", events: "new drain read active handlerStart", want: "releaseResponse"},
		{name: "its response is being written", events: "new drain read active handlerStart lastResponse write handlerEnd", want: "holdResponse"},
		{name: "its response is written", events: "new drain read active handlerStart lastResponse write handlerEnd idle", want: "releaseResponse setTimer"},
		{name: "data at the last moment", events: "new drain timer" + linger + " unread", want: "resumeReads setTimer", after: testLinger},
		{name: "a read at the last moment", events: "new drain timer" + linger + " read", want: "resumeReads setTimer", after: testLinger},
		{name: "a header at the last moment", events: "new drain timer" + linger + " read timer active", want: "holdResponse stopTimer", after: testLinger + headerTimeout/waitSteps},
		{name: "serving at the stop", events: "new read active handlerStart drain", want: "stopTimer"},
		{name: "written without a handler at the stop", events: "new read active handlerStart handlerEnd drain", want: "holdResponse stopTimer"},
		{name: "half a header", events: "new read drain timer" + linger, want: "endReads setTimer", after: headerTimeout},
		{name: "half a header, closed", events: "new read drain timer" + linger + " close", want: "reportSilent stopTimer", after: headerTimeout},
		{name: "half a header, refused", events: "new read drain timer" + linger + " lastResponse close", want: "stopTimer", after: headerTimeout},
		{name: "half a header, listed", events: "new read drain listed close", want: "stopTimer"},
		{name: "a header in pieces", events: "new read drain timer" + linger[:len(linger)-6] + " read timer" + linger, want: "endReads setTimer", after: headerTimeout*(waitSteps-1)/waitSteps + headerTimeout},
		{name: "half a header after a response", events: "new " + request + " read drain timer" + linger, want: "endReads setTimer", after: headerTimeout},
		{name: "quiet after a response", events: "new " + request + " drain timer" + linger, want: "endReads setTimer", after: testLinger},

		{name: "hijacked", events: "new read active handlerStart hijack", want: "holdHijacked revealDeadline"},
		{name: "hijacked after the stop", events: "new read drain active handlerStart hijack", want: "holdHijacked revealDeadline stopTimer"},
		{name: "hijacked, handler returns", events: "new read active handlerStart hijack drain handlerEnd", want: ""},
		{name: "hijacked, closed", events: "new read active handlerStart hijack drain handlerEnd hijackerClose", want: "releaseHijacked"},
		{name: "hijacked, closed twice", events: "new read active handlerStart hijack hijackerClose hijackerClose", want: ""},
		{name: "closed by the server", events: "new read active hijackerClose", want: ""},

		{name: "TLS without a byte", secure: true, events: "new drain timer" + linger, want: "endReads setTimer", after: testLinger},
		{name: "TLS handshake", secure: true, events: "new readHello write drain timer" + linger, want: "endReads setTimer", after: headerTimeout},
		{name: "the server is slow in a TLS handshake", secure: true, events: "new readHello drain timer timer write", want: "setTimer", after: 2 * headerTimeout / waitSteps},
		{name: "the server is very slow in a TLS handshake", secure: true, events: "new readHello drain timer" + linger + " write", want: "resumeReads setTimer", after: headerTimeout},
		{name: "TLS handshake, not reported as a header", secure: true, events: "new readHello write drain timer" + linger + " close", want: "stopTimer", after: headerTimeout},
		{name: "TLS 1.2 handshake complete", secure: true, events: "new readHello write readCipher readHello write drain timer" + linger, want: "endReads setTimer", after: testLinger},

		{name: "HTTP/2 at the stop", events: "new http2 read write active idle drain", want: "announceGoAway setTimer"},
		{name: "HTTP/2, serving at the stop", events: "new http2 read write active handlerStart drain", want: "announceGoAway stopTimer"},
		{name: "HTTP/2, confirmed", events: "new http2 read write active idle drain confirm", want: "setTimer"},
		{name: "HTTP/2, quiet", events: "new http2 read write active idle drain confirm timer" + linger, want: "sendGoAway setTimer", after: testLinger},
		{name: "HTTP/2, not confirmed", events: "new http2 read write active idle drain timer" + linger, want: "sendGoAway setTimer", after: headerTimeout},
		{name: "HTTP/2, GOAWAY written", events: "new http2 read write active idle drain confirm timer" + linger + " write", want: "setTimer", after: testLinger},
		{name: "HTTP/2, quiet after the GOAWAY", events: "new http2 read write active idle drain confirm timer" + linger + " write timer" + linger, want: "endReads setTimer", after: 2 * testLinger},
		{name: "HTTP/2, idle after the last response", events: "new http2 read write active handlerStart drain confirm lastResponse write handlerEnd idle timer" + linger, want: "sendGoAway setTimer", after: testLinger},
		{name: "HTTP/2, the GOAWAY cannot be written", events: "new http2 read write active idle drain confirm timer" + linger + " timer", want: "endReads setTimer", after: testLinger + headerTimeout},
		{name: "HTTP/2 found by its first request", events: "new read active usersHTTP2 handlerStart write handlerEnd idle read drain timer" + linger + " close", want: "stopTimer", after: testLinger},
		{name: "HTTP/2, a preface after the stop", events: "new http2 drain read write active", want: "holdResponse announceGoAway stopTimer"},
		{name: "HTTP/2, a preface long after the stop", events: "new http2 drain wait read write active handlerStart", want: "releaseResponse", after: headerTimeout},
		{name: "HTTP/2, a request on its way", events: "new http2 read write active idle drain confirm active handlerStart", want: "releaseResponse"},
		{name: "HTTP/2, a request despite the GOAWAY", events: "new http2 read write active handlerStart drain wait handlerStart", want: "sendGoAway", after: headerTimeout},
		{name: "HTTP/2, a second such request", events: "new http2 read write active handlerStart drain wait handlerStart handlerStart", want: "", after: headerTimeout},
		{name: "HTTP/2, last response before the stop", events: "new http2 read write active handlerStart lastResponse", want: "announceGoAway"},
		{name: "HTTP/2, long after the last response", events: "new http2 read write active handlerStart lastResponse wait drain handlerStart", want: "", after: headerTimeout},
		{name: "HTTP/2 of the user", events: "new usersHTTP2 read write active idle drain timer" + linger, want: "endReads setTimer", after: testLinger},
		{name: "HTTP/2 without a preface", events: "new http2 write drain timer" + linger, want: "endReads setTimer", after: testLinger},
		{name: "HTTP/2, half a preface", events: "new http2 write read drain timer" + linger, want: "endReads setTimer", after: headerTimeout},
		{name: "HTTP/2, half a preface, closed", events: "new http2 write read drain timer" + linger + " close", want: "stopTimer", after: headerTimeout},
		{name: "HTTP/2, frames between requests", events: "new http2 read write active idle drain confirm timer read timer timer timer", want: "setTimer", after: testLinger * (waitSteps - 1) / waitSteps},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := t0
			s := &connState{linger: testLinger, inHandshake: test.secure}
			if got := run(s, &now, strings.Fields(test.events)...).String(); got != test.want {
				t.Errorf("after %q: actions %q, want %q", test.events, got, test.want)
			}
			if got := now.Sub(t0); got != test.after {
				t.Errorf("after %q: at %v, want %v", test.events, got, test.after)
			}
		})
	}
}

// After each event, the role of a connection says whether the drain waits for the server, for the
// hijacker or for an event stream of the Debug page.
func TestConnState_RoleSaysWhatDrainWaitsFor(t *testing.T) {
	for _, test := range []struct {
		events string
		want   role
	}{
		{"new", roleServed},
		{"new read active handlerStart", roleServed},
		{"new read active handlerStart stream", roleStream},
		{"new read active handlerStart stream streamEnd", roleServed},
		{"new http2 read active handlerStart handlerStart stream", roleServed},
		{"new http2 read active handlerStart handlerStart stream handlerEnd", roleStream},
		{"new read active handlerStart hijack", roleHijacked},
		{"new read active handlerStart hijack handlerEnd", roleHijacked},
		// The handler is still running after it has closed the connection.
		{"new read active handlerStart hijack hijackerClose", roleHijacked},
		{"new read active handlerStart hijack hijackerClose handlerEnd", roleGone},
		{"new read active handlerStart hijack handlerEnd hijackerClose", roleGone},
		{"new close", roleGone},
		{"new http2 read active handlerStart close", roleServed},
		{"new http2 read active handlerStart close handlerEnd", roleGone},
		{"new http2 read active close handlerStart", roleServed},
		{"new http2 read active close handlerStart handlerEnd", roleGone},
	} {
		now := t0
		s := &connState{linger: testLinger}
		run(s, &now, strings.Fields(test.events)...)
		if s.role != test.want {
			t.Errorf("after %q: role %d, want %d", test.events, s.role, test.want)
		}
	}
}

// A reachable describes a connection in a state that events can lead to: the state, the guards that
// are held for the connection, and whether its timer is running.
type reachable struct {
	state             connState
	hijacked, written bool // whether the guards of holdHijacked and holdResponse are held
	timer             bool
}

// normal sets all times in r that are not zero to t0, so that the test has to visit only a finite
// number of states.
func (r reachable) normal() reachable {
	for _, at := range []*time.Time{&r.state.unansweredSince, &r.state.due, &r.state.incompleteSince, &r.state.announcedAt} {
		if !at.IsZero() {
			*at = t0
		}
	}
	return r
}

// possible reports whether net/http, a handler or a client can cause the event with this name.
func (r reachable) possible(name string) bool {
	s := &r.state
	open := s.phase == phaseReading || s.phase == phaseServing
	switch name {
	case "drain":
		return !s.draining
	case "new":
		return s.phase == phaseReading && s.handlers == 0 && !s.unanswered && !s.http2
	case "active":
		return s.phase == phaseReading && (s.unanswered || s.http2)
	case "idle":
		return s.phase == phaseServing && (s.handlers == 0 || s.http2)
	case "hijack":
		return s.phase == phaseServing && s.handlers == 1 && !s.http2
	case "close":
		return open && (s.handlers == 0 || s.http2)
	case "http2":
		return s.phase == phaseReading && !s.http2 && s.handlers == 0
	case "usersHTTP2":
		return open && !s.http2 && s.handlers == 0
	case "read":
		return open && !s.inHandshake
	case "readHello", "readCipher", "readRecord":
		return s.phase == phaseReading && s.inHandshake
	case "write":
		return open
	case "unread":
		return open && s.readsEnded
	case "handlerStart":
		return s.handlers < 2 && (s.http2 && s.preface || s.phase == phaseServing && s.handlers == 0)
	case "stream":
		return s.streams < s.handlers
	case "handlerEnd":
		return s.handlers > s.streams
	case "streamEnd":
		return s.streams > 0
	case "lastResponse":
		return s.handlers > 0
	case "timer", "keepTimer":
		return r.timer
	case "listed":
		return s.hasUnknownRequest()
	case "confirm":
		return open && s.announced && !s.confirmed
	}
	return true
}

// TestConnState_EveryReachableStateSatisfiesInvariants checks all states that can be reached with
// at most two handlers.
func TestConnState_EveryReachableStateSatisfiesInvariants(t *testing.T) {
	type visit struct {
		reachable
		path string
	}
	seen := map[reachable]bool{}
	var queue []visit
	add := func(r reachable, path string) {
		if n := r.normal(); !seen[n] {
			seen[n] = true
			queue = append(queue, visit{n, path})
		}
	}
	for _, secure := range []bool{false, true} {
		add(reachable{state: connState{linger: testLinger, inHandshake: secure}}, fmt.Sprint("secure=", secure))
	}
	for len(queue) > 0 && !t.Failed() {
		v := queue[0]
		queue = queue[1:]
		for name := range kindNames {
			if !v.possible(name) {
				continue
			}
			next, now, path := v.reachable, t0, v.path+" "+name
			if todo := next.do(t, run(&next.state, &now, name), path); !t.Failed() {
				next.check(t, todo, path)
			}
			if strings.Count(path, " ") < 40 {
				add(next, path)
			}
		}
	}
	t.Logf("%d states", len(seen))
}

// do applies the actions in todo to r, and reports actions that are impossible or contradictory.
func (r *reachable) do(t *testing.T, todo connActions, path string) connActions {
	t.Helper()
	guard := func(held *bool, hold, release connActions) {
		if todo&hold != 0 && *held || todo&release != 0 && !*held || todo&hold != 0 && todo&release != 0 {
			t.Errorf("%s: a guard is acquired twice, or released without being held: %v", path, todo)
		}
		*held = *held && todo&release == 0 || todo&hold != 0
	}
	guard(&r.hijacked, holdHijacked, releaseHijacked)
	guard(&r.written, holdResponse, releaseResponse)
	if todo&setTimer != 0 && todo&stopTimer != 0 || todo&endReads != 0 && todo&resumeReads != 0 {
		t.Errorf("%s: contradictory actions: %v", path, todo)
	}
	switch {
	case strings.HasSuffix(path, "imer") || todo&stopTimer != 0:
		r.timer = todo&setTimer != 0
	case todo&setTimer != 0:
		r.timer = true
	}
	return todo
}

// check fails the test for each invariant that does not hold for the state of the connection in r.
func (r *reachable) check(t *testing.T, todo connActions, path string) {
	t.Helper()
	s := &r.state
	for invariant, ok := range map[string]bool{
		"a draining connection that is being read has a timer":                               !s.draining || s.phase != phaseReading || r.timer,
		"the timer runs if and only if it is due at some time":                               r.timer == !s.due.IsZero(),
		"no timer runs unless the connection is being read":                                  !r.timer || s.phase == phaseReading,
		"reads are ended only while the server waits for a request":                          !s.readsEnded || s.phase == phaseReading || s.phase == phaseClosed,
		"a hijacked connection has a guard until it is closed":                               r.hijacked == (s.phase == phaseHijacked),
		"a response without a handler has a guard during the drain":                          r.written == (s.draining && s.phase == phaseServing && s.handlers == 0),
		"a connection is gone if and only if it is closed and no handler is running":         (s.role == roleGone) == (s.phase == phaseClosed && s.handlers == 0),
		"a GOAWAY is sent only to a client that has sent its preface":                        todo&(announceGoAway|sendGoAway) == 0 || s.preface,
		"the second GOAWAY follows the first":                                                todo&sendGoAway == 0 || s.announced && todo&announceGoAway == 0,
		"a closed header is reported only during the drain, and not if a handler is running": todo&reportSilent == 0 || s.draining && s.handlers == 0,
		"the counts of handlers are right":                                                   0 <= s.streams && s.streams <= s.handlers,
	} {
		if !ok {
			t.Errorf("violated invariant: %s\nafter %s\nin %s", invariant, path, cmp.Diff(connState{linger: testLinger}, *s, cmp.AllowUnexported(connState{}, wire.Handshake{})))
		}
	}
}
