package httpdrain

import "time"

func (s *connState) applyHTTP2(e connEvent) connActions {
	switch e.kind {
	case eventHTTP2:
		s.http2, s.canSendGoAway, s.inHandshake = true, e.canSendGoAway, false
		s.preface = s.phase == phaseServing // a request has shown that the connection is HTTP/2
	case eventConfirm:
		s.confirmed = true
		return s.schedule(e.now)
	case eventLastResponse:
		if s.canSendGoAway {
			return s.announce(e.now)
		}
		s.closeAnnounced = true
		s.incompleteSince = time.Time{} // the header is complete, so do not report that the drain closed the connection in its middle
	}
	return 0
}

// announce requests the first GOAWAY, unless it was requested before.
func (s *connState) announce(now time.Time) connActions {
	if s.announced || !s.preface || !s.canSendGoAway { // no GOAWAY may precede the preface
		return 0
	}
	s.announced, s.announcedAt = true, now
	return announceGoAway
}

// goAway handles the start of a request on HTTP/2. If the server drains, the client should open no
// new streams. The client has headerTimeout to notice the first GOAWAY. The second GOAWAY refuses
// the requests that the client sends after that: otherwise a client that disregards the first
// GOAWAY could use the connection until Force.
func (s *connState) goAway(now time.Time) connActions {
	if !s.draining || !s.preface || !s.canSendGoAway {
		return 0
	}
	if s.announced && !s.closeAnnounced && now.Sub(s.announcedAt) >= headerTimeout {
		s.closeAnnounced, s.wrote = true, false
		return sendGoAway
	}
	return s.announce(now)
}
