package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
)

// printRows measures rows and prints them as a table: the operation, and what a user would use
// instead. It adds the ratios of the rows to the runs in past.
func printRows(w io.Writer, ours string, rows []row, rounds int, past *runs) {
	figures.Row(w, "operation", ours, "against", "its time", "ratio (middle half)", "all runs", "the host's own spread", "target", "allocations")
	figures.Row(w, "---", "---:", "---", "---:", "---:", "---:", "---:", "---:", "---:")
	for _, r := range rows {
		figures.Row(w, measure(r, r.rounds(rounds)).cells(past)...)
	}
}

// rounds returns the number of rounds for the row; n is the number for an ordinary row.
func (r row) rounds(n int) int {
	if r.once {
		n = max(1, n/3) // fewer rounds, because each needs a preparation, which takes longer than the operation
	}
	return n * max(1, r.often)
}

func (r result) cells(past *runs) []string {
	ratio, all, limit, theirs, host := "–", "–", "–", "–", "–"
	ours := short(r.ourTime)
	switch {
	case r.counted == 0:
		ours = "–" // there was no contention, so the row has no result
	case r.their != nil:
		ratio = fmt.Sprintf("**%.2f ×** (%.2f–%.2f)", r.ratio, r.low, r.high)
		if r.high < 0.01 {
			ratio = "**< 0.01 ×**"
		}
		theirs = short(r.theirTime)
		all = past.add(r)
	}
	if r.counted > 1 {
		host = span(r.calm, r.rough)
	}
	if r.alone != nil {
		ratio += fmt.Sprintf(", %d rounds", r.counted)
	}
	switch {
	case r.limit > 0:
		limit = fmt.Sprintf("≤ %.2f ×", r.limit)
	case r.maxTime > 0:
		limit = "≤ " + short(r.maxTime)
	}
	if r.missed() {
		limit += ", **missed**"
	}
	allocs := "–" // one run has many operations, so a number of allocations would be misleading
	if !r.once {
		allocs = fmt.Sprintf("%.0f", r.allocated)
	}
	return []string{r.what, ours, cmp.Or(r.peer, "–"), theirs, ratio, all, host, limit, allocs}
}

// missed reports whether the result is above its target. It compares ratios as they are printed, so
// that a reader of the table comes to the same conclusion.
func (r result) missed() bool {
	switch {
	case r.limit > 0:
		return math.Round(100*r.ratio) > math.Round(100*r.limit)
	case r.maxTime > 0:
		return r.ourTime > r.maxTime
	}
	return false
}

// printPeers prints a table of the jobs that each library can do, and their times.
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
	figures.Row(w, head...)
	figures.Row(w, rule...)
	for _, c := range cells {
		figures.Row(w, c...)
	}
}

// short formats a duration in nanoseconds with about three digits.
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
