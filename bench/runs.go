package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
)

// runsFile has the ratio of each row in each run with -write. A ratio depends more on the host than
// on chance, so the table has the range of the ratios of all runs beside the ratio of the last run.
// When a change of the code has changed the ratio of a row, delete the older runs of that row.
const runsFile = "bench/runs.csv"

// runsHead is the first line of runsFile.
var runsHead = []string{"date", "processor", "operation", "against", "ratio"}

// runs has the ratios of all runs.
type runs struct{ records [][]string }

// readRuns reads the runs in the named file. If the file does not exist, it returns an empty value.
func readRuns(name string) (*runs, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &runs{records: [][]string{runsHead}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = len(runsHead)
	records, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &runs{records}, nil
}

// add adds the ratio of a result to the runs, and returns the range of the ratios of its row in all
// runs, such as "0.63–0.94".
func (rs *runs) add(r result) string {
	low, high := r.ratio, r.ratio
	for _, past := range rs.records {
		if ratio, err := strconv.ParseFloat(past[4], 64); err == nil && past[2] == r.what && past[3] == r.peer {
			low, high = min(low, ratio), max(high, ratio)
		}
	}
	rs.records = append(rs.records, []string{time.Now().Format(time.DateOnly), figures.Processor(), r.what, r.peer, fmt.Sprintf("%.3f", r.ratio)})
	return span(low, high)
}

// write writes the runs to the named file.
func (rs *runs) write(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = csv.NewWriter(f).WriteAll(rs.records) // WriteAll also flushes the writer
	return errors.Join(err, f.Close())
}

// span formats a range of ratios, or a single ratio if both are printed alike.
func span(low, high float64) string {
	from, to := fmt.Sprintf("%.2f", low), fmt.Sprintf("%.2f", high)
	switch {
	case high < 0.01:
		return "< 0.01"
	case from == to:
		return from
	}
	return from + "–" + to
}
