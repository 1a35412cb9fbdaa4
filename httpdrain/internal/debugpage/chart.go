package debugpage

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A chart is the drawing of the timeline. The curve is drawn in a box of 1000 by 100 units, which
// the browser stretches to the size of the page. All other positions are percentages of the width,
// so that text and lines are not stretched.
type chart struct {
	Line, Area string // SVG paths of the curve
	Now        string // position of the present time
	Live       bool   // the mark of the present time moves through the drawing as time passes
	From       int64  // the time from the left edge of the chart to the present, in milliseconds
	Span       int64  // the width of the axis, in milliseconds
	Marks      []chartLabel
	Ticks      []chartLabel
	Top, TopX  string // label of the highest value, and its position
	Text       string // description for screen readers
}

type chartLabel struct {
	X, Label string
	Anchor   string // alignment of the label: start, middle or end
	Y        int
	Ahead    bool // the label marks the next phase, which has not begun
}

// runningAxisEnd returns the right end of the time axis if the scope is running, and the zero time
// otherwise. The axis shows the last minute and advances in steps of a quarter of a minute, so that
// the present visibly moves between two snapshots.
func runningAxisEnd(now *snapshot) time.Time {
	if len(now.marks) != 0 {
		return time.Time{}
	}
	return now.at.UTC().Truncate(pastRunning / 4).Add(pastRunning / 4)
}

// openAxis returns the length of the time axis of a shutdown for which no end is known, and 0 for
// any other.
func openAxis(now *snapshot) time.Duration {
	if len(now.marks) == 0 || now.state == ctxshutdown.Complete || nextPhaseIsTimed(now) {
		return 0
	}
	return roundUp(now.at.Sub(now.marks[0].at))
}

// nextPhaseIsTimed reports whether it is known when the process enters its next phase.
func nextPhaseIsTimed(now *snapshot) bool {
	return now.status != nil && now.state != ctxshutdown.Complete && now.status.Until.After(now.at)
}

// A timeAxis maps times to positions in the drawing. It begins at the first mark or, if there is no
// mark, a minute before the snapshot.
type timeAxis struct {
	from, to time.Time // the times at the left and the right edge of the drawing
	origin   time.Time // the time of the first mark; zero if there is no mark
}

func newTimeAxis(now *snapshot) timeAxis {
	if len(now.marks) == 0 {
		end := runningAxisEnd(now)
		return timeAxis{from: end.Add(-pastRunning), to: end}
	}
	origin := now.marks[0].at
	end := origin.Add(openAxis(now))
	if nextPhaseIsTimed(now) {
		end = now.status.Until
	}
	if now.state == ctxshutdown.Complete {
		end = now.marks[len(now.marks)-1].at
	}
	margin := max(end.Sub(origin), 10*time.Millisecond) / 20
	return timeAxis{from: origin.Add(-margin), to: end.Add(margin), origin: origin}
}

func (a *timeAxis) span() time.Duration { return a.to.Sub(a.from) }

// fraction returns the position of t between the edges, from 0 to 1.
func (a *timeAxis) fraction(t time.Time) float64 {
	return min(1, max(0, float64(t.Sub(a.from))/float64(a.span())))
}

func (a *timeAxis) percent(t time.Time) string {
	return strconv.FormatFloat(a.fraction(t)*100, 'f', 2, 64) + "%"
}

func newChart(now *snapshot) chart {
	axis := newTimeAxis(now)
	peak := 1
	for _, p := range now.points {
		peak = max(peak, p.guards)
	}
	c := chart{
		Now:  axis.percent(now.at),
		Live: now.state != ctxshutdown.Complete || len(now.marks) == 0,
		From: now.at.Sub(axis.from).Milliseconds(),
		Span: axis.span().Milliseconds(),
		Top:  thousands(peak),
		TopX: "0",
	}
	if len(now.marks) > 0 {
		c.TopX = axis.percent(axis.origin)
	}
	c.drawCurve(now.points, peak, axis)
	c.addMarks(now, axis)
	c.addTicks(axis)
	c.Text = thousands(now.maxGuards) + " held at the stop, " + thousands(now.guards) + " now."
	switch {
	case len(now.marks) == 0:
		c.Text = "Now " + count(now.guards, "guard") + " held; at most " + thousands(peak) + " recorded."
	case now.state == ctxshutdown.Running:
		c.Text = "Not stopped yet: " + count(now.guards, "guard") + " held."
	}
	return c
}

// drawCurve draws a staircase to the right edge; the page hides the part after the present.
func (c *chart) drawCurve(points []point, peak int, axis timeAxis) {
	var line strings.Builder
	first := 0.0
	for i, p := range points {
		if i+1 < len(points) && !points[i+1].at.After(axis.from) {
			continue // the curve leaves this point before the left edge, so it is not visible
		}
		x := axis.fraction(p.at) * 1000
		y := strconv.FormatFloat(100-90*float64(p.guards)/float64(peak), 'f', 1, 64)
		if line.Len() == 0 {
			first = x
			line.WriteString("M" + strconv.FormatFloat(x, 'f', 1, 64) + "," + y)
		} else {
			line.WriteString("H" + strconv.FormatFloat(x, 'f', 1, 64) + "V" + y)
		}
	}
	line.WriteString("H1000")
	c.Line = line.String()
	c.Area = c.Line + "V100H" + strconv.FormatFloat(first, 'f', 1, 64) + "Z"
}

// labelWidth returns the width of a label on a phone, as a fraction of the width of the drawing.
func labelWidth(label string) float64 { return (8*float64(len(label)) + 10) / 280 }

// addMarks labels the steps that have been reached, and the next phase if its beginning is known.
// Labels that would overlap are on different lines. A label for which no line has room is left out,
// because the list of steps names the step too.
func (c *chart) addMarks(now *snapshot, axis timeAxis) {
	var ends [3]float64 // where the last label ends on each of the three lines of labels
	add := func(t time.Time, label string, ahead bool) {
		l := chartLabel{X: axis.percent(t), Label: label, Anchor: "start", Ahead: ahead}
		left := axis.fraction(t)
		if left > .75 {
			l.Anchor = "end"
			left -= labelWidth(label)
		}
		line := slices.IndexFunc(ends[:], func(end float64) bool { return end <= left })
		if line < 0 {
			line, l.Label = len(ends)-1, ""
		} else {
			ends[line] = left + labelWidth(label)
		}
		l.Y = 14 + 13*line
		c.Marks = append(c.Marks, l)
	}
	for _, m := range now.marks {
		title := m.step.title()
		switch {
		case now.status == nil && m.step == stepSoft:
			title = "Stop"
		case now.status == nil && m.step == stepHard:
			title = "Force"
		}
		add(m.at, title, false)
	}
	if nextPhaseIsTimed(now) {
		add(now.status.Until, stepOf(now.status.Phase+1).title(), true)
	}
}

// addTicks labels the time axis: with the time of day while the scope runs, else with the time
// since the first mark.
func (c *chart) addTicks(axis timeAxis) {
	add := func(t time.Time, label string) {
		l := chartLabel{X: axis.percent(t), Label: label, Anchor: "middle"}
		switch x := axis.fraction(t); {
		case x < .04:
			l.Anchor = "start"
		case x > .96:
			l.Anchor = "end"
		}
		c.Ticks = append(c.Ticks, l)
	}
	if axis.origin.IsZero() {
		for t := axis.from; !t.After(axis.to); t = t.Add(pastRunning / 2) { // more labels would overlap on a phone
			add(t, t.Format("15:04:05"))
		}
		return
	}
	interval := tickInterval(axis.to.Sub(axis.origin) / 4)
	for d := time.Duration(0); !axis.origin.Add(d).After(axis.to); d += interval {
		label := "0"
		if d > 0 {
			label = "+" + shortDuration(d)
		}
		add(axis.origin.Add(d), label)
	}
}

// tickInterval returns the next round interval of at least d.
func tickInterval(d time.Duration) time.Duration {
	for unit := time.Millisecond; unit < time.Second; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if n*unit >= d {
				return n * unit
			}
		}
	}
	return roundUp(d)
}

// roundUp returns the shortest round duration of at least d. Durations are round if they are in the
// slice steps, or a number of whole hours.
func roundUp(d time.Duration) time.Duration {
	steps := []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute,
		2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
	}
	if i := slices.IndexFunc(steps, func(s time.Duration) bool { return s >= d }); i >= 0 {
		return steps[i]
	}
	return (d/time.Hour + 1) * time.Hour
}

func shortDuration(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
	case d < time.Hour:
		return strconv.FormatFloat(d.Minutes(), 'f', -1, 64) + " min"
	}
	return strconv.FormatFloat(d.Hours(), 'f', -1, 64) + " h"
}
