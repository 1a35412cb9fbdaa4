package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestGate_ReportsRowsThatAreTooSlowOrAllocate(t *testing.T) {
	const slow = "too slow"
	for _, test := range []struct {
		name string
		res  result
		want string
	}{
		{"at its target", result{row: row{limit: 1.1}, ratio: 1.1}, ""},
		{"a little above its target", result{row: row{limit: 1.1}, ratio: 1.6}, ""},
		{"far above its target", result{row: row{limit: 1.1}, ratio: 1.7}, slow},
		{"above a gate of its own", result{row: row{limit: 1.03, gate: 1.2}, ratio: 1.21}, slow},
		{"below a gate of its own", result{row: row{limit: 1.03, gate: 1.2}, ratio: 1.2}, ""},
		{"without a target", result{ratio: 100}, ""},
		{"above a gate without a target", result{row: row{gate: 3}, ratio: 4}, slow},
		{"with a target that is a time, and a gate", result{row: row{maxTime: 150, gate: 20}, ratio: 19}, ""},
		{"allocates as stated", result{row: row{allocs: 2}, allocated: 2.003}, ""},
		{"allocates more", result{row: row{allocs: 2}, allocated: 3}, "allocates 3.0 times per operation, not 2"},
		{"allocates less", result{row: row{allocs: 2}, allocated: 1}, "allocates 1.0 times per operation, not 2"},
		{"allocates, but should not", result{allocated: 1}, "allocates 1.0 times per operation, not 0"},
		{"allocates in every third operation", result{allocated: 1. / 3}, "allocates 0.3 times per operation, not 0"},
		{"allocates now and then", result{row: row{allocs: rare}, allocated: 7}, ""},
		{"prepared for one run", result{row: row{once: true, limit: 1}, ratio: 1, allocated: 7}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.Equal(t, "fault", test.res.fault(), test.want)
		})
	}
}

// A row that is too slow is measured again with more rounds. The gate fails only if the row is too
// slow in all measurements.
func TestGate_FailsOnlyIfRowIsSlowInRepeatedMeasurements(t *testing.T) {
	for _, test := range []struct {
		name   string
		ratios []float64 // the ratio that each measurement of the row finds
		rounds []int     // the expected number of rounds of each measurement
		passes bool
	}{
		{"fast", []float64{1}, []int{5}, true},
		{"slow at first", []float64{2, 1}, []int{5, 11}, true},
		{"slow twice", []float64{2, 2, 1}, []int{5, 11, 31}, true},
		{"slow in all measurements", []float64{2, 2, 2}, []int{5, 11, 31}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var measured []int
			var out strings.Builder
			uncontended := row{what: "no contention", limit: 1, alone: func() func(int) { return nil }}
			rows := []row{{what: "operation", limit: 1, allocs: rare}, {what: "other", allocs: rare}, uncontended}
			passes := passGate(&out, rows, func(r row, rounds int) result {
				if r.what == uncontended.what {
					return result{row: r, ratio: 9, counted: rounds / 3}
				}
				measured = append(measured, rounds)
				return result{row: r, ratio: test.ratios[len(measured)-1]}
			})
			if diff := cmp.Diff(test.rounds, measured); diff != "" || passes != test.passes {
				t.Errorf("passes %v, want %v; rounds (-want +got):\n%s", passes, test.passes, diff)
			}
			if n := strings.Count(out.String(), "operation"); n != len(measured) || strings.Contains(out.String(), "other") {
				t.Errorf("%d lines for %d measurements:\n%s", n, len(measured), &out)
			}
		})
	}
}

func TestGate_MeasuresRowOnOneProcessorIfRowSaysSo(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for one, want := range map[bool]int{false: 2, true: 1} {
		measured := 0
		ours := func() func(int) { return func(int) { measured = runtime.GOMAXPROCS(0) } }
		measureForGate(row{ours: ours, oneProcessor: one, once: true}, 1)
		testkit.Equal(t, fmt.Sprintf("processors if oneProcessor is %t", one), measured, want)
		testkit.Equal(t, "processors afterwards", runtime.GOMAXPROCS(0), 2)
	}
}
