package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// The gate keeps what was reached. It looks at ratios, never at times: those depend on the machine. A noisy machine is
// asked again, with more rounds, before the gate closes. Allocations do not depend on noise, and are exact.

// attempts are the rounds of each look at a row.
var attempts = []int{5, 11, 31}

// slack is how far above its target a ratio may be, where a row does not say otherwise.
const slack = 1.5

// pass reports whether every row that has a target, or states its allocations, passes. It prints a line for each look.
func pass(w io.Writer, rows []row, measure func(r row, rounds int) result) bool {
	closed := 0
	for _, r := range rows {
		if math.IsInf(r.closesAt(), 1) && !r.exact() {
			continue
		}
		var fault string
		for _, rounds := range attempts {
			res := measure(r, rounds)
			fault = res.fault()
			line := fmt.Sprintf("%-72s", r.what)
			if r.alone != nil && 2*res.counted < rounds {
				fmt.Fprintln(w, line+" not to be seen here and now")
				fault = ""
				break
			}
			if !math.IsInf(r.closesAt(), 1) {
				line += fmt.Sprintf(" %5.2f × (≤ %.2f)", res.ratio, r.closesAt())
			}
			fmt.Fprintln(w, strings.TrimSpace(line+"  "+fault))
			if fault == "" {
				break
			}
		}
		if fault != "" {
			closed++
		}
	}
	if closed > 0 {
		fmt.Fprintf(w, "gate: %d rows do not pass, at %v rounds each\n", closed, slices.Max(attempts))
	}
	return closed == 0
}

// exact reports whether the allocations of an operation are known.
func (r row) exact() bool { return r.allocs != rare && !r.once }

// closesAt returns the ratio above which a row does not pass.
func (r row) closesAt() float64 {
	switch {
	case r.gate > 0:
		return r.gate
	case r.limit == 0:
		return math.Inf(1)
	}
	return slack * r.limit
}

// fault returns why a result does not pass, or nothing.
func (r result) fault() string {
	// What the runtime allocates beside us now and then makes for a hundredth at most.
	if r.exact() && math.Abs(r.allocated-float64(r.allocs)) > 0.1 {
		return fmt.Sprintf("allocates %.1f times per operation, not %d", r.allocated, r.allocs)
	}
	if r.ratio > r.closesAt() {
		return "too slow"
	}
	return ""
}
