package restart

import (
	"time"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A BackOff counts the failures in a row of a group, and decides when the next process may be
// started. The zero value has counted nothing.
type BackOff struct {
	Failures  int       // number of failures in a row
	NotBefore time.Time // when the next process may be started
	GivenUp   bool      // the group was given up: no process is started until an operator orders it

	failedAt time.Time // time of the last failure
}

// PreventsStart reports whether no process may be started now.
func (b *BackOff) PreventsStart(now time.Time) bool { return b.GivenUp || now.Before(b.NotBefore) }

// CanEndRow reports whether a process that became ready at readyAt can end the row of failures by
// being ready for Restart.ResetAfter. readyAt is zero if it never became ready. A process that
// became ready before the last failure cannot: it does not show that the processes started now
// work.
func (b *BackOff) CanEndRow(readyAt time.Time) bool { return readyAt.After(b.failedAt) }

// EndRow forgets the failures in a row. The next failure begins a new row. EndRow is called when a
// process has been ready for Restart.ResetAfter.
func (b *BackOff) EndRow() { b.Failures = 0 }

// Fail counts the failure of a process that became ready at this time, zero for never. It delays
// the start of the next process by a pause, or gives the group up. If the process had been ready
// for Restart.ResetAfter, its failure does not lengthen a row of failures; it begins a row if there
// is none.
func (b *BackOff) Fail(cfg spec.Restart, readyAt, now time.Time) (pause time.Duration, givesUp bool) {
	stable := !readyAt.IsZero() && now.Sub(readyAt) >= cfg.ResetAfter
	if stable && b.CanEndRow(readyAt) {
		b.EndRow()
	}
	if stable && b.Failures > 0 {
		b.failedAt = now
	} else {
		b.count(now)
	}
	if cfg.CrashLimit > 0 && b.Failures >= cfg.CrashLimit {
		b.GivenUp = true
		return 0, true
	}
	pause = cfg.Backoff(b.Failures)
	b.NotBefore = now.Add(pause)
	return pause, false
}

// GiveUp counts a failure and gives the group up.
func (b *BackOff) GiveUp(now time.Time) {
	b.count(now)
	b.GivenUp = true
}

func (b *BackOff) count(now time.Time) {
	b.Failures++
	b.failedAt = now
}
