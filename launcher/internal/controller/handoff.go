package controller

import (
	"bytes"
	"encoding/json"

	"github.com/swansong-go/swansong/launcher/internal/restart"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A Handoff is what a group hands over in an upgrade of the launcher besides its part of the state
// file. It contains secrets.
type Handoff struct {
	Epoch              int64 // the field epoch of the Controller, converted by statefile.ToMillis
	Revisions          revision.Set
	BackOff            restart.BackOff
	LastFailure        string
	Roll               *roll.Roll
	GivenUp, Missing   int
	AwaitsDependencies bool
	Healthy, Finished  bool
	Instances          map[string]InstanceHandoff
}

// An InstanceHandoff is what a group hands over of a process in an upgrade of the launcher besides
// its part of the state file.
type InstanceHandoff struct {
	Config     spec.Group // the configuration that the process was started with
	FinishedIn int
}

// Handoff returns the JSON of a [Handoff] for the program that takes over. To the records of
// processes for the state file it adds the data by which that program recognizes them. It encodes
// the Handoff before it returns, because the revisions and the roll in it may change once the
// caller unlocks the mutex.
func (c *Controller) Handoff(processes []*statefile.Process) (json.RawMessage, error) {
	h := Handoff{Epoch: statefile.ToMillis(c.epoch), Revisions: c.revisions, BackOff: c.backOff, LastFailure: c.lastFailure, Roll: c.roll,
		GivenUp: c.degraded.givenUp, Missing: c.degraded.missing, AwaitsDependencies: c.awaitsDependencies, Healthy: c.healthy, Finished: c.finished,
		Instances: map[string]InstanceHandoff{}}
	for _, p := range processes {
		i := c.instances[p.ID]
		// If the process has not been adopted yet, or has ended meanwhile, there is nothing of it
		// to hand over.
		if i == nil {
			continue
		}
		h.Instances[p.ID] = InstanceHandoff{*i.Config(), i.finishedIn}
		i.AddIdentity(p)
	}
	return json.Marshal(h)
}

// ResumeFrom goes on where another program has stopped. The controller has the configuration with
// which this program was started; if that has changed, [Controller.TakeChanged] returns it.
//
// It is called instead of Restore in a program that has taken over in an upgrade: that program goes
// on with the roll, the back-off and the numbers of revisions, which an ordinary start would begin
// anew. Callers that waited for a roll belonged to the other program, so the roll gets a new
// result.
func (c *Controller) ResumeFrom(h *Handoff, r statefile.Group) {
	configured := c.revisions.Wanted()
	c.epoch, c.revisions, c.unadopted, c.lastNumber = statefile.FromMillis(h.Epoch), h.Revisions, r.Processes, r.LastNumber
	c.backOff, c.lastFailure, c.roll, c.degraded = h.BackOff, h.LastFailure, h.Roll, degradation{h.GivenUp, h.Missing}
	c.awaitsDependencies, c.healthy, c.finished, c.handed = h.AwaitsDependencies, h.Healthy, h.Finished, h.Instances
	if c.roll != nil {
		c.rollResult = newResult()
	}
	newest := 0
	for number, r := range c.revisions.ByNumber {
		newest = max(newest, number)
		if sameConfig(r.Config, configured.Config) {
			// Use the configuration of this program, although it equals the one that was handed
			// over: JSON does not preserve bytes that are not UTF-8.
			r.Config, r.Source = configured.Config, configured.Source
		}
	}
	// The earlier program may have loaded the configuration of this program before: it is then the
	// one that the group wants or, after a rollback, that of the newest revision. If it is neither,
	// it has changed.
	if !sameConfig(*c.Config(), configured.Config) && !sameConfig(c.revisions.ByNumber[newest].Config, configured.Config) {
		c.changed = configured
	}
}

// IsHandedOver reports whether another program has handed the group over in an upgrade.
func (c *Controller) IsHandedOver() bool { return c.handed != nil }

// TakeChanged returns the configuration that was changed by an upgrade and has not been applied
// yet, or nil if there is none. A second call returns nil.
func (c *Controller) TakeChanged() *revision.Revision {
	next := c.changed
	c.changed = nil
	return next
}

// sameConfig compares two configurations by their JSON. One of them has been decoded from the JSON
// of another program, so what JSON does not keep must not count as a difference.
func sameConfig(a, b spec.Group) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}
