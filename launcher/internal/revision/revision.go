// Package revision records the configurations of a group by number, and why the group has fewer
// processes than its configuration says.
package revision

import (
	"fmt"

	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A Set has the revisions of a group by number. It contains the wanted revision and, during a roll,
// the other revision of the roll: the one that is being replaced, or, in a rollback, the one that
// the roll had led to. It also contains the revisions of adopted processes, so that their numbers
// are not used again.
type Set struct {
	Current  int // number of the revision that the group wants
	ByNumber map[int]*Revision
}

// A Revision is a configuration of a group, and how many processes fewer than configured the group
// has on purpose.
type Revision struct {
	Config     spec.Group
	Source     any // launcher.Config.Source of the configuration from which this revision was loaded
	Shortfall  Shortfall
	LoadedWith []string // Config.DependsOn as it was before a roll changed it
}

// Wanted returns the revision that the group wants: the one with the number Current.
func (s *Set) Wanted() *Revision { return s.ByNumber[s.Current] }

// Unused returns a number that is higher than those of all revisions in use.
func (s *Set) Unused() int {
	n := s.Current + 1
	for used := range s.ByNumber {
		n = max(n, used+1)
	}
	return n
}

// Desired returns how many processes there should be of this revision.
func (r *Revision) Desired() int { return r.Shortfall.desired(r.Config) }

// Rules returns the rules of package roll for this revision.
func (r *Revision) Rules() roll.Config { return r.Config.RollConfig(r.Desired()) }

// Finish counts a process that has finished, with a failure or without.
func (r *Revision) Finish(failed bool) {
	if r.Desired() == 0 {
		return
	}
	r.Shortfall.Finished++
	if failed {
		r.Shortfall.Failed++
	}
}

// Number returns how many processes the group has by configuration and orders, including those that
// have finished.
func (r *Revision) Number() int { return r.Config.Desired - r.Shortfall.ScaledDown }

// Scale sets the number of processes that the group is to have, including those that have finished.
func (r *Revision) Scale(n int) { r.Shortfall.ScaledDown = r.Config.Desired - n }

// A Shortfall counts the processes that a group has fewer than its configuration says, although
// nothing is wrong.
type Shortfall struct {
	ScaledDown int  // by how many processes a user has scaled the group down; negative if it was scaled up
	Stopped    bool // a user has stopped the group, so it has no processes
	Finished   int  // number of processes that ended and, by the restart policy, are not replaced
	Failed     int  // number of processes in Finished that ended with a failure
}

// Orders returns the orders of operators that also hold for a later revision: that the group is
// stopped, and by how many processes it is scaled down or up. The latter holds only if sameNumber
// is set: both revisions are configured with the same number of processes.
func (s Shortfall) Orders(sameNumber bool) Shortfall {
	kept := Shortfall{Stopped: s.Stopped}
	if sameNumber {
		kept.ScaledDown = s.ScaledDown
	}
	return kept
}

func (s Shortfall) desired(cfg spec.Group) int {
	if s.Stopped {
		return 0
	}
	return max(0, cfg.Desired-s.ScaledDown-s.Finished)
}

// Message says how many processes of a group with the configuration cfg have finished, and that
// they are not started again. desired is the number of processes that the group is still to have.
func (s Shortfall) Message(desired int, cfg spec.Group) string {
	have, theyAre, failed := "have", "they are", fmt.Sprintf(", %d of them with a failure", s.Failed)
	if s.Finished == 1 {
		have, theyAre, failed = "has", "it is", ", with a failure"
	}
	text := fmt.Sprintf("%d of %d %s finished", s.Finished, s.Finished+desired, have)
	switch {
	case desired == 0 && s.Finished == 1:
		text = "the process has finished"
	case desired == 0:
		text = fmt.Sprintf("all %d processes have finished", s.Finished)
	}
	if cfg.Job && desired == 0 {
		text = "completed: " + text
	}
	if s.Failed > 0 {
		text += failed
	}
	text = fmt.Sprintf("%s; with restart policy %s %s started again only on request", text, cfg.Restart.Policy, theyAre)
	if !cfg.Job {
		text += fmt.Sprintf("; if %s meant to end, make the group a job", theyAre)
	}
	return text
}
