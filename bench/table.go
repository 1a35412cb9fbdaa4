package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

func line(w io.Writer, cells ...string) { fmt.Fprintln(w, "| "+strings.Join(cells, " | ")+" |") }

// printRows prints what each operation costs, by whom, next to what a user would do otherwise.
func printRows(w io.Writer, ours string, rows []row, rounds int) {
	line(w, "operation", ours, "against", "its time", "ratio (middle half)", "target", "allocations")
	line(w, "---", "---:", "---", "---:", "---:", "---:", "---:")
	for _, r := range rows {
		line(w, measure(r, r.rounds(rounds)).cells()...)
	}
}

// rounds returns in how many rounds the row is measured where others are in n.
func (r row) rounds(n int) int {
	if r.once {
		n = max(1, n/3) // preparing it takes longer than doing it
	}
	return n * max(1, r.often)
}

func (r result) cells() []string {
	ratio, limit, theirs := "–", "–", "–"
	ours := short(r.ourTime)
	switch {
	case r.counted == 0:
		ours = "–" // nobody contended, so nothing is known, and nothing missed
	case r.more > 0:
		ratio = fmt.Sprintf("**%+.1f ns** (%+.1f–%+.1f)", r.ratio, r.low, r.high)
		theirs = short(r.theirTime)
	case r.their != nil:
		ratio = fmt.Sprintf("**%.2f ×** (%.2f–%.2f)", r.ratio, r.low, r.high)
		if r.high < 0.01 {
			ratio = "**< 0.01 ×**"
		}
		theirs = short(r.theirTime)
	}
	if r.alone != nil {
		ratio += fmt.Sprintf(", %d rounds", r.counted)
	}
	switch {
	case r.limit > 0:
		limit = fmt.Sprintf("≤ %.2f ×", r.limit)
	case r.more > 0:
		limit = fmt.Sprintf("≤ %+.1f ns", r.more)
	case r.most > 0:
		limit = "≤ " + short(r.most)
	}
	if r.missed() {
		limit += ", **missed**"
	}
	allocs := "–" // of one run that does many things at once, the figure says nothing
	if !r.once {
		allocs = fmt.Sprintf("%.0f", r.allocated)
	}
	return []string{r.what, ours, cmp.Or(r.peer, "–"), theirs, ratio, limit, allocs}
}

// missed reports whether the ratio is above its target. It goes by the digits that are printed, so that a reader sees the same.
func (r result) missed() bool {
	switch {
	case r.limit > 0:
		return math.Round(100*r.ratio) > math.Round(100*r.limit)
	case r.more > 0:
		return math.Round(10*r.ratio) > math.Round(10*r.more)
	case r.most > 0:
		return r.ourTime > r.most
	}
	return false
}

// printPeers prints who can do which job, and for how much.
func printPeers(w io.Writer, peers []peer, rounds int) {
	cells := make([][]string, len(peers))
	for i, p := range peers {
		cells[i] = []string{p.name}
	}
	head, rule := []string{""}, []string{"---"}
	for j, job := range jobs {
		head, rule = append(head, job.name), append(rule, "---:")
		sides := make([]side, len(peers))
		for i, p := range peers {
			sides[i] = p.sides[j]
		}
		times, ratios := compare(sides, rounds)
		for i := range peers {
			cell := "–"
			if sides[i] != nil {
				cell = fmt.Sprintf("%s, %.2f ×", short(times[i]), ratios[i])
			}
			cells[i] = append(cells[i], cell)
		}
	}
	line(w, head...)
	line(w, rule...)
	for _, c := range cells {
		line(w, c...)
	}
}

// short prints nanoseconds with about three digits.
func short(ns float64) string {
	switch {
	case ns < 10:
		return fmt.Sprintf("%.1f ns", ns)
	case ns < 1e3:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.1f µs", ns/1e3)
	}
	return fmt.Sprintf("%.1f ms", ns/float64(time.Millisecond))
}
