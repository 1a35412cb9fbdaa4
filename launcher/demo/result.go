//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"go.etcd.io/bbolt"
)

// A result tells how many requests, writes and events were lost, and which processes survived.
type result struct {
	groups       []groupResult
	stored, gone int // numbers of acknowledged writes, and of acknowledged writes that are not in the file
	survivors    []string
	missed       int32 // the number of events that the demo was too slow to receive
	failures     []error
}

type groupResult struct {
	name     string
	requests int
	longest  time.Duration
	cut      int
	failed   int
	started  int
	ended    map[pb.ProcessState]int
}

// count compares the writes that clients recorded with the file of the server, and looks for
// processes that have survived.
func count(s *stage, l *allLoad) (r result, err error) {
	for _, g := range []struct {
		name string
		cut  int
		sent func() (int, time.Duration)
		errs []error
	}{
		{"keyvalue", l.killed.count(), l.keyvalue.Sent, l.keyvalue.Failures()},
		{"web", 0, l.web.Sent, l.web.Failures()},
	} {
		requests, longest := g.sent()
		r.groups = append(r.groups, groupResult{name: g.name, requests: requests, longest: longest, cut: g.cut, failed: len(g.errs),
			ended: map[pb.ProcessState]int{}})
		r.failures = append(r.failures, g.errs...)
	}
	for _, e := range s.log.events() {
		r.missed += e.GetMissed()
		if e.GetTo() >= pb.ProcessState_COMPLETE {
			g := &r.groups[slices.IndexFunc(r.groups, func(g groupResult) bool { return g.name == e.GetGroup() })]
			g.started++ // every process that was started has ended by now
			g.ended[e.GetTo()]++
		}
	}
	stored := l.keyvalue.Stored()
	r.stored = len(stored)
	if r.gone, err = missing(s.path("store.db"), stored); err != nil {
		return r, err
	}
	r.survivors = survivors(s.mark)
	return r, nil
}

// missing returns the number of acknowledged writes that are not in the file.
func missing(path string, want map[string]string) (gone int, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, ReadOnly: true})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	defer db.Close()
	return gone, db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("kv"))
		for key, value := range want {
			if b == nil || string(b.Get([]byte(key))) != value {
				gone++
			}
		}
		return nil
	})
}

// survivors returns the pids of processes with the mark in their environment. Without /proc it
// finds none.
func survivors(mark string) (found []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		if env, err := os.ReadFile(name); err == nil && slices.Contains(strings.Split(string(env), "\x00"), mark) {
			found = append(found, filepath.Base(filepath.Dir(name)))
		}
	}
	return found
}

// hasLosses reports whether anything was lost that must not be lost.
func (r result) hasLosses() bool {
	return r.gone > 0 || len(r.survivors) > 0 || len(r.failures) > 0 || r.missed > 0 || r.stored == 0
}

func (r result) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(what string, cell func(g groupResult) any) {
		fmt.Fprintf(w, "%-44s\t", what)
		for _, g := range r.groups {
			fmt.Fprintf(w, "%v\t", cell(g))
		}
		fmt.Fprintln(w)
	}
	row("", func(g groupResult) any { return g.name })
	row("processes started", func(g groupResult) any { return g.started })
	for _, state := range slices.Sorted(maps.Keys(union(r.groups))) {
		row("  of which ended "+state.String(), func(g groupResult) any { return g.ended[state] })
	}
	row("requests", func(g groupResult) any { return g.requests })
	row("  cut off by kill -9, and sent again", func(g groupResult) any { return g.cut })
	row("  the longest wait for an answer", func(g groupResult) any { return g.longest.Round(time.Millisecond) })
	w.Flush()
	failed := 0
	for _, g := range r.groups {
		failed += g.failed
	}
	fmt.Fprintf(&b, "\n%6d requests failed\n%6d of %d acknowledged writes lost\n%6d survivors\n", failed, r.gone, r.stored, len(r.survivors))
	if r.missed > 0 {
		fmt.Fprintf(&b, "%6d events missed, so the log above is incomplete\n", r.missed)
	}
	for _, err := range r.failures[:min(10, len(r.failures))] {
		fmt.Fprintf(&b, "\n%v", err)
	}
	if len(r.survivors) > 0 {
		fmt.Fprintf(&b, "\npids of survivors: %s\n", strings.Join(r.survivors, ", "))
	}
	return b.String()
}

func union(groups []groupResult) map[pb.ProcessState]int {
	all := map[pb.ProcessState]int{}
	for _, g := range groups {
		maps.Copy(all, g.ended)
	}
	return all
}
