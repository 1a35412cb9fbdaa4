package controller

import (
	"fmt"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A RollStatus describes the progress of a roll.
type RollStatus struct {
	From, To int    // the numbers of the revisions between which the roll leads
	Phase    string // "canary", "rolling" or "rolling back"
	Paused   bool   // the roll waits for [launcher.Manager.Resume], [launcher.Manager.Rollback] or a new roll
	Why      string // the last failure; empty if there was none
	GivenUp  int    // number of processes that will not be replaced
	Canaries int    // number of canaries that are available; set only while Until is not zero
	// Until is when the canaries will have been available for long enough, or when the roll retries
	// after a failure; zero if the roll waits for neither.
	Until time.Time
}

// String returns the status in a line.
func (s *RollStatus) String() string {
	if s.Paused {
		return fmt.Sprintf("the roll to revision %d is paused: %s", s.To, s.Why)
	}
	text := fmt.Sprintf("rolling from revision %d to %d", s.From, s.To)
	if s.Phase != roll.Rolling.String() {
		text += ", " + s.Phase
	}
	left := time.Until(s.Until).Round(time.Second)
	switch {
	case s.Until.IsZero():
	case s.Canaries > 0 && left <= 0:
		text += fmt.Sprintf("; %d are available, and the others follow when these pass their check", s.Canaries)
		if s.Why != "" {
			text += ": " + s.Why
		}
	case s.Canaries > 0:
		text += fmt.Sprintf("; %d are available, and the others follow in %v", s.Canaries, left)
	default:
		text += fmt.Sprintf("; next try in %v: %s", left, s.Why)
	}
	return text
}

// rollStatus returns the progress of the roll, or nil if there is no roll.
func (c *Controller) rollStatus(now time.Time) *RollStatus {
	r := c.roll
	if r == nil {
		return nil
	}
	st := r.Status(c.revisions.Wanted().Rules(), c.view(now))
	s := &RollStatus{From: r.From, To: r.To, Phase: r.Phase().String(), Paused: r.Paused(), GivenUp: r.GivenUp(), Why: st.Why, Canaries: st.Canaries}
	if st.Until > 0 {
		s.Until = c.epoch.Add(st.Until)
	}
	if c.checks != nil && c.checks.noAnswer != "" {
		s.Why = "no answer: " + c.checks.noAnswer
	}
	return s
}
