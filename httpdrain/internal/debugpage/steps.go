package debugpage

import (
	"slices"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// A stepView is an entry of the page's list of steps.
type stepView struct {
	Title, Note, When string
	Left              *int64 // milliseconds until the step begins; nil if that is not known
	State             string // state of the step: done, current, todo or skipped
}

var phaseNotes = [...]string{
	graceful.Serving:  "ready, accepting work",
	graceful.LameDuck: "load balancers are told to leave, work is still accepted",
	graceful.Soft:     "no new work",
	graceful.Hard:     "work is cancelled",
	graceful.Exit:     "given up",
}

// stepViews returns the list of steps for the page: the phases of the process, or the states of the
// scope if the page has no process.
func stepViews(now *snapshot, v *view, phase graceful.Phase) (steps []stepView) {
	complete, running := now.state == ctxshutdown.Complete, now.state == ctxshutdown.Running
	add := func(s step, title, note string, current, passed bool) {
		steps = append(steps, now.stepView(s, title, note, current, passed))
	}
	if now.status == nil {
		add(stepServing, "Running", "accepting work", running, !running)
		add(stepSoft, "Shutting down", "no new work", !running && !complete && !now.forced, now.forced || complete)
		if now.forced {
			add(stepHard, "Forced", "work is cancelled", !complete, complete)
		}
		add(stepDone, "Complete", "no guards held", complete, false)
		return steps
	}
	for r := graceful.Serving; r <= graceful.Exit; r++ {
		s := stepOf(r)
		if r == graceful.Exit && complete {
			add(stepDone, "Drained", "no guards held", true, false)
			break
		}
		add(s, s.title(), phaseNotes[r], r == phase && !complete, r < phase || complete)
		if last := &steps[len(steps)-1]; r == phase+1 && v.Phase.Next != "" {
			if last.Left = v.Phase.Remaining; last.Left == nil {
				last.When = "at the next signal"
			}
		}
	}
	return steps
}

func (now *snapshot) stepView(s step, title, note string, current, passed bool) stepView {
	v := stepView{Title: title, Note: note, When: now.timeOf(s), State: "todo"}
	switch {
	case current:
		v.State = "current"
	case passed:
		v.State = "done"
	}
	if passed && v.When == "" && s != stepServing {
		v.State, v.When = "skipped", "not needed"
		if slices.ContainsFunc(now.marks, func(m mark) bool { return m.step > s && m.step < stepDone }) {
			v.When = "–" // the step was skipped, or it passed between two snapshots
		}
	}
	return v
}

// timeOf returns the time at which the step s was reached, as text: the time of day for the first
// step, and the time since the first step for all others. It returns "" if s was not reached.
func (now *snapshot) timeOf(s step) string {
	i := slices.IndexFunc(now.marks, func(m mark) bool { return m.step == s })
	switch {
	case i < 0:
		return ""
	case i == 0:
		return now.marks[0].at.UTC().Format("15:04:05 UTC")
	}
	return "+" + duration(millisSince(now.marks[i].at, now.marks[0].at))
}

// wasForced reports whether the scope or its process was forced at any time, even if the scope is
// complete now.
func (now *snapshot) wasForced() bool {
	return now.forced || slices.ContainsFunc(now.marks, func(m mark) bool { return m.step == stepHard })
}
