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

// A result contains what was lost in one way to stop the service.
type result struct {
	tally
	Way      string
	OnDisk   int           // acknowledged orders that are in the file of the orders
	JobsLost int           // acknowledged orders without a confirmation mail
	Drain    time.Duration // time from the signal to the end of the server
}

// checkFiles counts which acknowledged orders are in the files that the service has left in dir.
func (r *result) checkFiles(dir string) error {
	orders, err := readIDs(filepath.Join(dir, ordersFile))
	if err != nil {
		return err
	}
	mails, err := readIDs(filepath.Join(dir, mailsFile))
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

// readIDs returns the order IDs with which the complete lines of a journal begin.
func readIDs(name string) (map[int]bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[int]bool{}
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return found, nil // io.EOF means the end of the file, or a line without its line end
		}
		prefix, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		id, err := strconv.Atoi(prefix)
		if err != nil {
			return nil, fmt.Errorf("%s: the line does not begin with an order ID: %q", name, line)
		}
		found[id] = true
	}
}

// table formats the results, one column for each.
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
