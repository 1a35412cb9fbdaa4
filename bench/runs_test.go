package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

func TestRuns_RangeOfRowCoversItsRatiosInAllRuns(t *testing.T) {
	name := filepath.Join(t.TempDir(), "runs.csv")
	ranges := []string{}
	for _, run := range []struct {
		what  string
		ratio float64
	}{{"guard", 0.7}, {"guard", 0.94}, {"other, with a comma", 2}, {"guard", 0.63}} {
		all, err := readRuns(name)
		testkit.Equal(t, "error", err, nil)
		ranges = append(ranges, all.add(result{row: row{what: run.what, peer: "WaitGroup"}, ratio: run.ratio}))
		testkit.Equal(t, "error", all.write(name), nil)
	}
	testkit.Equal(t, "ranges", ranges, []string{"0.70", "0.70–0.94", "2.00", "0.63–0.94"})

	if err := os.WriteFile(name, []byte("date,processor\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := readRuns(name); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("the error for a damaged file does not name it: %v", err)
	}
}

func TestResult_SpreadIsRatioOfConsecutiveRounds(t *testing.T) {
	low, high := spread([]float64{10, 10, 20, 20, 10})
	testkit.Equal(t, "spread", span(low, high), "1.00") // the ratios of consecutive rounds are 1, 2, 1 and 0.5
	low, high = spread([]float64{10})
	testkit.Equal(t, "spread of one round", span(low, high), "1.00")
}

func TestRunsFile_InRepositoryCanBeRead(t *testing.T) {
	all, err := readRuns("runs.csv")
	if err != nil {
		t.Fatal(err)
	}
	if len(all.records) < 2 || strings.Join(all.records[0], ",") != strings.Join(runsHead, ",") {
		t.Errorf("%d records, the first is %q", len(all.records), all.records[0])
	}
}
