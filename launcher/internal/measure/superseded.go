//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/load"
)

// superseded begins rolls under load, supersedes each of them by a newer order before its end, and
// prints how many requests are lost. The number of processes that a roll has replaced when it is
// superseded differs from roll to roll. The last roll is completed.
func superseded(w io.Writer, rolls int) error {
	dir, done, err := shortDir()
	if err != nil {
		return err
	}
	defer done()
	g := runners("g", 5, "--initial-work", "0", "--work-duration", "1ms")
	g.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
	ask := func(l *load.Ledger, ctx context.Context, c *load.Client, _ string) { l.Ask(ctx, c, nil) }
	var took time.Duration
	var count uint64
	r, err := underLoad(filepath.Join(dir, "d"), g, ask, func(ctx context.Context, m *launcher.Manager, _ *rolled) error {
		events, stop := m.Watch()
		defer stop()
		gone, cancel := context.WithCancel(ctx)
		cancel()
		for n := range rolls {
			if err := m.Restart(gone, g.Name, "measurement"); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("call of Restart with a context that has ended: %w", err)
			}
			for left := n % g.Desired; left > 0; {
				if e, ok := <-events; !ok {
					return errors.New("the events have ended")
				} else if e.To == launcher.Ready {
					left--
				}
			}
		}
		begin := time.Now()
		err := m.Restart(ctx, g.Name, "measurement")
		took, count = time.Since(begin), m.Stats().Groups[g.Name].Rolls["superseded"]
		return err
	})
	if err != nil {
		return err
	}
	requests, longest := r.Sent()
	fmt.Fprintf(w, "\n## Superseded rolls\n\nA group of 5 is rolled %d times under the load of four clients. Each roll but the last is superseded by the next one, after 0 to 4\n"+
		"processes have become READY.\n\n| | target | measured |\n| --- | ---: | ---: |\n", rolls+1)
	figures.Row(w, "rolls that were superseded", fmt.Sprint(rolls), fmt.Sprint(count))
	figures.Row(w, "requests, and lost ones", "0 lost", fmt.Sprintf("%d, %d lost", requests, len(r.Failures())))
	mustBeNone("requests lost in superseded rolls", len(r.Failures()))
	figures.Row(w, "the last roll; the longest wait of a client", "–", fmt.Sprintf("%v; %v", round(took), round(longest)))
	return nil
}
