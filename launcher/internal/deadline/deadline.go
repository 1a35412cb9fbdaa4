// Package deadline bounds the stop of all groups of a launcher together.
package deadline

import (
	"fmt"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A Total is the deadline for the stop of all groups together. All methods may be called
// concurrently. Until Scope is set, only Configure may be called.
type Total struct {
	Scope *ctxshutdown.Swansong // the scope of all groups

	mu         sync.Mutex
	configured time.Duration // the total deadline; 0: none
	derived    bool          // whether the value of the field configured was computed from the groups
	// removed has an entry for each group that a reload has removed and that has not ended: the
	// total deadline that applied at the reload, by the scope of the group.
	removed map[*ctxshutdown.Swansong]time.Duration
	began   time.Time     // when the stop of the groups began; zero if it has not begun
	total   time.Duration // the total deadline of the stop that has begun; 0: no limit
}

// Configure sets the deadline of a configuration that is loaded, 0 for none. If derived is true,
// the deadline was computed from the groups. A derived deadline does not become shorter as long as
// the groups exist that the configuration removes; their scopes are in removed.
func (d *Total) Configure(deadline time.Duration, derived bool, removed ...*ctxshutdown.Swansong) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.removed == nil {
		d.removed = map[*ctxshutdown.Swansong]time.Duration{}
	}
	for _, group := range removed {
		d.removed[group] = d.now()
	}
	d.configured, d.derived = deadline, derived
}

// Forget forgets a removed group, by its scope. It is called when the group has ended.
func (d *Total) Forget(group *ctxshutdown.Swansong) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.removed, group)
}

// now returns how long a stop that begins now may take, or 0 if there is no limit. The caller holds
// d.mu.
func (d *Total) now() time.Duration {
	total := d.configured
	if !d.derived {
		return total
	}
	for _, before := range d.removed {
		switch {
		case total == 0:
		case before == 0:
			total = 0
		default:
			total = max(total, before)
		}
	}
	return total
}

// begin returns the time at which the stop of all groups began, and how long the stop may take, or
// 0 if there is no limit. The first call of begin sets both.
func (d *Total) begin() (began time.Time, total time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.began.IsZero() {
		d.began, d.total = time.Now(), d.now()
	}
	return d.began, d.total
}

// Remaining returns t, or less if the groups are being stopped and the deadline leaves less time.
func (d *Total) Remaining(t time.Duration) time.Duration {
	if d.Scope.Err() == nil {
		return t
	}
	began, total := d.begin()
	if total <= 0 {
		return t
	}
	return min(t, time.Until(terminateAt(began, total)))
}

// Enforce waits until all groups are told to stop. If there is a deadline, it then calls the
// function begun with the time at which it will call terminate. When the deadline comes near, it
// calls the function terminate, which sends SIGTERM, and then forces the scope. It returns when it
// has forced the scope, or when all groups have ended.
func (d *Total) Enforce(begun func(terminateAt time.Time), terminate func(reason string)) {
	complete := d.Scope.Completion().Done()
	select {
	case <-d.Scope.Done():
	case <-complete:
		return
	}
	began, total := d.begin()
	if total <= 0 {
		return
	}
	begun(terminateAt(began, total))
	reached := func(at time.Time) bool {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-complete:
			return false
		}
	}
	if !reached(terminateAt(began, total)) {
		return
	}
	terminate(fmt.Sprintf("four fifths of the total deadline of %v have passed", total))
	if reached(began.Add(total / 10 * 9)) {
		d.Scope.Force(fmt.Errorf("launcher: nine tenths of the %v that total_deadline allows for the shutdown are used", total))
	}
}

// terminateAt returns the time at which, in a stop of all groups, the processes that have not ended
// get SIGTERM.
func terminateAt(began time.Time, total time.Duration) time.Time { return began.Add(total / 5 * 4) }
