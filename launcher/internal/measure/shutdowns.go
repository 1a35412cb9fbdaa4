//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/launcher"
)

// A behavior says how some of the measured processes behave, and how their shutdown ends with
// default settings.
type behavior struct {
	share   int // number of processes with this behavior in a thousand
	args    []string
	outcome launcher.Outcome
}

var behaviors = []behavior{
	{740, []string{"--behavior", "clean"}, launcher.Clean}, // the process has work for half a second
	{205, []string{"--behavior", "slow-drain", "--drain-duration", "1500ms"}, launcher.Clean},
	{47, []string{"--behavior", "request-more", "--drain-duration", "3500ms"}, launcher.Clean},
	{5, []string{"--behavior", "hang"}, launcher.Killed},
	{3, []string{"--behavior", "crash"}, launcher.Crash},
}

// mixed returns the behavior of process n of a thousand. 397 and 1000 have no common divisor, so
// the rare behaviors are spread evenly.
func mixed(n int) behavior {
	n = n * 397 % 1000
	for _, b := range behaviors {
		if n < b.share {
			return b
		}
		n -= b.share
	}
	panic("the shares of the behaviors must add up to 1000")
}

// A transitionLog records the state transitions that a launcher logs.
type transitionLog struct {
	mu    sync.Mutex
	state map[string]string // the last logged state of each process by id
	count int
	gaps  int // number of transitions that do not begin in the state to which the process's last one has led
}

func (s *transitionLog) Enabled(context.Context, slog.Level) bool { return true }
func (s *transitionLog) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *transitionLog) WithGroup(string) slog.Handler            { return s }

func (s *transitionLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message != string(launcher.Transition) {
		return nil
	}
	attrs := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	before, ok := s.state[attrs["process"]]
	if !ok {
		before = launcher.State(0).String()
	}
	if attrs["from"] != before {
		s.gaps++
	}
	s.state[attrs["process"]] = attrs["to"]
	s.count++
	return nil
}

// shutdowns stops n processes, fifty at a time, and prints their outcomes and times.
func shutdowns(w io.Writer, n int) error {
	const atOnce, grace = 50, 3 * time.Second // the default grace period
	var took []time.Duration
	var inGrace, transitions, gaps, unfinished, unexpected, survivors int
	outcomes := map[launcher.Outcome]int{}
	for done := 0; done < n; done += atOnce {
		count := min(atOnce, n-done)
		s := &transitionLog{state: map[string]string{}}
		all, err := batch(done, count, slog.New(s))
		if err != nil {
			return err
		}
		for i, st := range all {
			took = append(took, st.Took())
			outcomes[st.Outcome]++
			if st.Outcome == launcher.Clean && st.Took() <= grace {
				inGrace++
			}
			survivors += len(st.Survivors)
			if st.Outcome != mixed(done+i).outcome {
				unexpected++
			}
			if s.state[st.ID] != st.State.String() {
				unfinished++
			}
		}
		transitions, gaps = transitions+s.count, gaps+s.gaps
	}
	percent := func(o launcher.Outcome) string {
		return fmt.Sprintf("%.1f %%", 100*float64(outcomes[o])/float64(n))
	}
	fmt.Fprintf(w, "\n## Shutdowns\n\n%d processes, %d at a time, with the defaults of the launcher. Of a thousand, 740 have half a second of work left, 205\n"+
		"drain for 1.5 s, 47 for 3.5 s, for which they ask for more time, 5 hang, and 3 crash while they drain.\n\n", n, atOnce)
	fmt.Fprintf(w, "| | target | measured |\n| --- | ---: | ---: |\n")
	for _, row := range [][3]string{
		{"exit code 0, within the maximum", "> 99 %", percent(launcher.Clean)},
		{"exit code 0, within the grace period alone", "", fmt.Sprintf("%.1f %%", 100*float64(inGrace)/float64(n))},
		{"killed", "< 1 %", percent(launcher.Killed)},
		{"crashed", "", percent(launcher.Crash)},
		{"time, median", "< 2 s", round(figures.Median(took)).String()},
		{"time, 99 of 100", "< 5 s", round(figures.Quantile(took, 0.99)).String()},
		{"time, longest", "< 10 s", round(slices.Max(took)).String()},
		{"transitions logged", "", fmt.Sprint(transitions)},
		{"transitions that do not begin in the state logged before", "0", fmt.Sprint(gaps)},
		{"processes whose end was not logged", "0", fmt.Sprint(unfinished)},
		{"processes whose outcome is not the expected one", "0", fmt.Sprint(unexpected)},
		{"survivors", "0", fmt.Sprint(survivors)},
	} {
		figures.Row(w, row[:]...)
	}
	mustBeNone("transitions that do not begin in the state logged before", gaps)
	mustBeNone("processes whose end was not logged", unfinished)
	mustBeNone("processes whose outcome is not the expected one", unexpected)
	mustBeNone("survivors", survivors)
	return nil
}

// batch starts and stops count processes, and returns their last status.
func batch(first, count int, logger *slog.Logger) ([]launcher.Status, error) {
	dir, done, err := shortDir()
	if err != nil {
		return nil, err
	}
	defer done()
	cfg := launcher.Config{Dir: filepath.Join(dir, "d"), Logger: logger}
	for i := range count {
		cfg.Groups = append(cfg.Groups, runners(fmt.Sprintf("g%d", i), 1, mixed(first+i).args...))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	m, err := launcher.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := m.Ready(ctx); err != nil {
		return nil, err
	}
	if err := m.Shutdown().Wait(ctx); err != nil {
		return nil, err
	}
	var all []launcher.Status
	for i := range count {
		st, err := m.Process(fmt.Sprintf("g%d-1", i))
		if err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	return all, nil
}
