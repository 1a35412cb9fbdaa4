package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A result is what came of one way of stopping.
type result struct {
	tally
	Way      string
	OnDisk   int // orders that were acknowledged and are in the file
	JobsLost int // orders that were acknowledged and not confirmed
	Drain    time.Duration
}

// compareWith looks for what was acknowledged in the files of the service.
func (r *result) compareWith(dir string) error {
	orders, err := numbers(filepath.Join(dir, ordersFile))
	if err != nil {
		return err
	}
	mails, err := numbers(filepath.Join(dir, mailsFile))
	if err != nil {
		return err
	}
	for _, id := range r.Orders {
		if orders[id] {
			r.OnDisk++
		}
		if !mails[id] {
			r.JobsLost++
		}
	}
	return nil
}

// numbers returns the numbers that the complete lines of a journal begin with.
func numbers(name string) (map[int]bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[int]bool{}
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return found, nil // the end, or a line that was cut short
		}
		number, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		id, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%s: a line that is not ours: %q", name, line)
		}
		found[id] = true
	}
}

// table puts the results side by side.
func table(results []result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(what string, cell func(result) string) {
		fmt.Fprintf(w, "%s\t", what)
		for _, r := range results {
			fmt.Fprintf(w, "%s\t", cell(r))
		}
		fmt.Fprintln(w)
	}
	count := func(n func(result) int) func(result) string {
		return func(r result) string { return strconv.Itoa(n(r)) }
	}
	row("", func(r result) string { return cmp.Or(r.Way, "?") })
	row("requests started", count(func(r result) int { return r.Started }))
	row("answered", count(func(r result) int { return r.Answered }))
	row("LOST", count(func(r result) int { return r.Lost }))
	row("connections refused", count(func(r result) int { return r.Refused }))
	row("503", count(func(r result) int { return r.Unavailable }))
	row("orders acknowledged", count(func(r result) int { return len(r.Orders) }))
	row("of these on disk", count(func(r result) int { return r.OnDisk }))
	row("jobs lost", count(func(r result) int { return r.JobsLost }))
	row("drain time", func(r result) string { return fmt.Sprintf("%d ms", r.Drain.Milliseconds()) })
	w.Flush()
	return b.String()
}
