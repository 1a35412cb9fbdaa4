package httpdrain

import (
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A debugChart is the timeline as it is drawn. Curves are in a box of 1000 by 100 that is stretched, all other places
// in percent of the width, so that text and lines are not.
type debugChart struct {
	Line, Area string
	Now        string // place of the present
	Live       bool   // the present moves
	From, Span int64  // milliseconds from the left edge to now, and to the right edge
	Marks      []debugChartMark
	Ticks      []debugChartMark
	Top, TopX  string // the most guards, and where to say so
	Text       string // what there is to see
}

type debugChartMark struct {
	X, Label string
	Anchor   string // of the label: start, middle, end
	Y        int
	Ahead    bool // not there yet
}

// frame is where the time axis ends while nothing has happened: the past minute slides past in steps, so that the
// present can be seen to move between two events.
func frame(now *debugState) time.Time {
	if len(now.marks) != 0 {
		return time.Time{}
	}
	return now.at.UTC().Truncate(window / 4).Add(window / 4)
}

// axis is the length of the time axis where that is not fixed by what comes next; zero where it is.
func axis(now *debugState) time.Duration {
	if len(now.marks) == 0 || now.state == ctxshutdown.Complete || ahead(now) {
		return 0
	}
	return whole(now.at.Sub(now.marks[0].at))
}

// ahead reports whether it is known when the next rung is entered.
func ahead(now *debugState) bool {
	return now.status != nil && now.state != ctxshutdown.Complete && now.status.Until.After(now.at)
}

func newDebugChart(now *debugState) debugChart {
	var c debugChart
	var origin, from, to time.Time
	switch {
	case len(now.marks) == 0:
		to, c.Live = frame(now), true
		from = to.Add(-window)
	default:
		origin = now.marks[0].at
		to = origin.Add(axis(now))
		if ahead(now) {
			to = now.status.Until
		}
		if now.state == ctxshutdown.Complete {
			to = now.marks[len(now.marks)-1].at
		}
		c.Live = now.state != ctxshutdown.Complete
		span := max(to.Sub(origin), 10*time.Millisecond)
		from, to = origin.Add(-span/20), to.Add(span/20)
	}
	span := to.Sub(from)
	place := func(at time.Time) float64 { return min(1, max(0, float64(at.Sub(from))/float64(span))) }
	percent := func(x float64) string { return strconv.FormatFloat(x*100, 'f', 2, 64) + "%" }
	c.From, c.Span = now.at.Sub(from).Milliseconds(), span.Milliseconds()
	c.Now = percent(place(now.at))

	peak := 1
	for _, p := range now.points {
		peak = max(peak, p.guards)
	}
	c.Top, c.TopX = thousands(peak), "0"
	if len(now.marks) > 0 {
		c.TopX = percent(place(origin))
	}
	y := func(guards int) string {
		return strconv.FormatFloat(100-90*float64(guards)/float64(peak), 'f', 1, 64)
	}
	var line strings.Builder
	first := 0.0
	for i, p := range now.points {
		if i+1 < len(now.points) && !now.points[i+1].at.After(from) {
			continue // not in the picture any more
		}
		x, level := strconv.FormatFloat(place(p.at)*1000, 'f', 1, 64), y(p.guards)
		if line.Len() == 0 {
			first = place(p.at) * 1000
			line.WriteString("M" + x + "," + level)
		} else {
			line.WriteString("H" + x + "V" + level)
		}
	}
	// To the right edge, and cut off at the present, which moves.
	line.WriteString("H1000")
	c.Line = line.String()
	c.Area = c.Line + "V100H" + strconv.FormatFloat(first, 'f', 1, 64) + "Z"

	mark := func(at time.Time, label string, ahead bool) {
		m := debugChartMark{X: percent(place(at)), Label: label, Anchor: "start", Y: 14, Ahead: ahead}
		if place(at) > .75 {
			m.Anchor = "end"
		}
		if n := len(c.Marks); n > 0 && c.Marks[n-1].Y == 14 {
			m.Y = 30 // the labels of neighbours would be one above the other
		}
		c.Marks = append(c.Marks, m)
	}
	for _, m := range now.marks {
		title := m.step.title()
		switch {
		case now.status == nil && m.step == stepSoft:
			title = "Stop"
		case now.status == nil && m.step == stepHard:
			title = "Force"
		}
		mark(m.at, title, false)
	}
	if ahead(now) {
		mark(now.status.Until, stepOf(now.status.Rung+1).title(), true)
	}

	tick := func(at time.Time, label string) {
		m := debugChartMark{X: percent(place(at)), Label: label, Anchor: "middle"}
		switch x := place(at); {
		case x < .04:
			m.Anchor = "start"
		case x > .96:
			m.Anchor = "end"
		}
		c.Ticks = append(c.Ticks, m)
	}
	if len(now.marks) == 0 {
		for at := from; !at.After(to); at = at.Add(window / 4) {
			tick(at, at.Format("15:04:05"))
		}
		c.Text = "Now " + count(now.guards, "guard") + " held; at most " + thousands(peak) + " while somebody looked."
		return c
	}
	step := stride(to.Sub(origin) / 4)
	for at := time.Duration(0); !origin.Add(at).After(to); at += step {
		label := "0"
		if at > 0 {
			label = "+" + short(at)
		}
		tick(origin.Add(at), label)
	}
	c.Text = thousands(now.atStop) + " held at the stop, " + thousands(now.guards) + " now."
	if now.state == ctxshutdown.Running {
		c.Text = "Not told to stop yet: " + count(now.guards, "guard") + " held."
	}
	return c
}

// stride is the next round step of a time axis.
func stride(d time.Duration) time.Duration {
	for unit := time.Millisecond; unit < time.Second; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if n*unit >= d {
				return n * unit
			}
		}
	}
	return whole(d)
}

func short(d time.Duration) string {
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
