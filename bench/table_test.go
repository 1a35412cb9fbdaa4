package main

import (
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

func TestResult_CellsShowRatioAndTargetAndWhetherMissed(t *testing.T) {
	const noTarget = "–"
	against := func() func(int) { return nil } // makes a row a comparison; the test does not call it
	for _, test := range []struct {
		name          string
		res           result
		ratio, target string
	}{
		{"below its target", result{row: row{their: against, limit: 1.2}, counted: 31, ratio: 1, low: 0.9, high: 1.1}, "**1.00 ×** (0.90–1.10)", "≤ 1.20 ×"},
		{"at its target", result{row: row{their: against, limit: 1.2}, counted: 31, ratio: 1.2, low: 1, high: 1.3}, "**1.20 ×** (1.00–1.30)", "≤ 1.20 ×"},
		{"at its target, as printed", result{row: row{their: against, limit: 1.2}, counted: 31, ratio: 1.204, low: 1, high: 1.3}, "**1.20 ×** (1.00–1.30)", "≤ 1.20 ×"},
		{"above its target", result{row: row{their: against, limit: 1.2}, counted: 31, ratio: 1.206, low: 1, high: 1.3}, "**1.21 ×** (1.00–1.30)", "≤ 1.20 ×, **missed**"},
		{"above its target, some rounds counted", result{row: row{their: against, alone: against, limit: 0.25}, counted: 28, ratio: 0.29, low: 0.28, high: 0.32}, "**0.29 ×** (0.28–0.32), 28 rounds", "≤ 0.25 ×, **missed**"},
		{"far below", result{row: row{their: against, limit: 1}, counted: 10, ratio: 0.001, low: 0.001, high: 0.002}, "**< 0.01 ×**", "≤ 1.00 ×"},
		{"with a time as target", result{row: row{maxTime: 150}, counted: 31, ourTime: 149}, "–", "≤ 150 ns"},
		{"above a time as target", result{row: row{maxTime: 5e7}, counted: 31, ourTime: 51e6}, "–", "≤ 50.0 ms, **missed**"},
		{"without a target", result{row: row{their: against}, counted: 31, ratio: 9, low: 8, high: 10}, "**9.00 ×** (8.00–10.00)", noTarget},
		{"without a peer", result{counted: 31}, "–", noTarget},
		{"without contention", result{row: row{their: against, alone: against, limit: 0.25}}, "–, 0 rounds", "≤ 0.25 ×"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cells := test.res.cells(&runs{})
			testkit.Equal(t, "ratio and target", []string{cells[4], cells[7]}, []string{test.ratio, test.target})
		})
	}
}
