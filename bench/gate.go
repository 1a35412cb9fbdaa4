package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
)

// The gate fails if the code has become slower, or allocates more or less. It checks ratios and not
// times, because times depend on the machine. If a ratio is too high, the row is measured again
// with more rounds, because the machine may be busy. Allocations do not depend on the load of the
// machine, so they must be exact.

// attempts are the numbers of rounds of the first, the second and the third measurement of a row.
var attempts = []int{5, 11, 31}

// slack is the factor by which a ratio may exceed its target, if the row has no gate of its own.
const slack = 1.5

// passGate reports whether every row that has a target, or states its allocations, passes. It
// prints a line for each measurement.
func passGate(w io.Writer, rows []row, measure func(r row, rounds int) result) bool {
	failed := 0
	for _, r := range rows {
		if math.IsInf(r.maxRatio(), 1) && !r.hasExactAllocs() {
			continue
		}
		var fault string
		for _, rounds := range attempts {
			res := measure(r, rounds)
			fault = res.fault()
			what := r.what
			if r.oneProcessor {
				what += " (one processor)"
			}
			line := fmt.Sprintf("%-72s", what)
			if r.alone != nil && 2*res.counted < rounds {
				fmt.Fprintln(w, line+" skipped: no contention on this machine")
				fault = ""
				break
			}
			if !math.IsInf(r.maxRatio(), 1) {
				line += fmt.Sprintf(" %5.2f × (≤ %.2f)", res.ratio, r.maxRatio())
			}
			fmt.Fprintln(w, strings.TrimSpace(line+"  "+fault))
			if fault == "" {
				break
			}
		}
		if fault != "" {
			failed++
		}
	}
	if failed > 0 {
		fmt.Fprintf(w, "gate: rows that are too slow, or allocate more or less than stated: %d, after %d rounds each\n", failed, slices.Max(attempts))
	}
	return failed == 0
}

// measureForGate calls measure, on one processor if r.oneProcessor is set.
func measureForGate(r row, rounds int) result {
	if r.oneProcessor {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	return measure(r, rounds)
}

// hasExactAllocs reports whether each operation makes the same number of allocations.
func (r row) hasExactAllocs() bool { return r.allocs != rare && !r.once }

// maxRatio returns the ratio above which a row does not pass.
func (r row) maxRatio() float64 {
	switch {
	case r.gate > 0:
		return r.gate
	case r.limit == 0:
		return math.Inf(1)
	}
	return slack * r.limit
}

// fault returns why a result does not pass, or "".
func (r result) fault() string {
	// The runtime allocates now and then, which adds at most a hundredth of an allocation per
	// operation.
	if r.hasExactAllocs() && math.Abs(r.allocated-float64(r.allocs)) > 0.1 {
		return fmt.Sprintf("allocates %.1f times per operation, not %d", r.allocated, r.allocs)
	}
	if r.ratio > r.maxRatio() {
		return "too slow"
	}
	return ""
}
