//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/load"
)

// many runs a group of n processes under load, rolls it, scales it down and up again, and prints
// how many requests are lost.
func many(w io.Writer, n int) error {
	dir, done, err := shortDir()
	if err != nil {
		return err
	}
	defer done()
	g := runners("g", n, "--initial-work", "0", "--work-duration", "1ms")
	g.MinHealthy, g.MaxSurge = launcher.Int(n-n/10), launcher.Int(max(n/10, 1))
	g.HealthCheckTimeout = 2 * time.Minute
	g.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
	ask := func(l *load.Ledger, ctx context.Context, c *load.Client, _ string) { l.Ask(ctx, c, nil) }
	var rolledIn, scaledIn time.Duration
	var threads int64
	r, err := underLoad(filepath.Join(dir, "d"), g, ask, func(ctx context.Context, m *launcher.Manager, _ *rolled) error {
		threads = procStatus("Threads:")
		begin := time.Now()
		if err := m.Restart(ctx, g.Name, "measurement"); err != nil {
			return err
		}
		rolledIn, begin = time.Since(begin), time.Now()
		for _, size := range []int{max(n/2, 1), n} {
			if err := m.Scale(ctx, g.Name, size, "measurement"); err != nil {
				return err
			}
		}
		scaledIn = time.Since(begin)
		return nil
	})
	if err != nil {
		return err
	}
	requests, longest := r.Sent()
	fmt.Fprintf(w, "\n## %d processes\n\nA group of %[1]d is rolled, a tenth at a time, and then scaled to half of that and back, under the load of four clients.\n\n"+
		"| | target | measured |\n| --- | ---: | ---: |\n", n)
	figures.Row(w, "requests, and lost ones", "0 lost", fmt.Sprintf("%d, %d lost", requests, len(r.Failures())))
	figures.Row(w, "time of the roll; time to scale to half and back", "–", fmt.Sprintf("%v; %v", round(rolledIn), round(scaledIn)))
	figures.Row(w, "longest wait of a client; threads of the launcher", "–", fmt.Sprintf("%v; %d", round(longest), threads))
	mustBeNone("requests lost of %d processes", len(r.Failures()), n)
	return nil
}
