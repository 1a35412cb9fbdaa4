//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/load"
)

// replacements rolls groups under load, and prints how long that takes and how many requests are
// lost.
func replacements(w io.Writer, rolls int) error {
	dir, done, err := shortDir()
	if err != nil {
		return err
	}
	defer done()
	server := filepath.Join(dir, "keyvalue-runner")
	if out, err := exec.Command("go", "build", "-o", server, "github.com/swansong-go/swansong/launcher/examples/keyvalue-runner").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	fmt.Fprintf(w, "\n## Replacements\n\n%d rolls of each group, under the load of four clients: medians (largest). READY to READY is from the moment that the only\n"+
		"process is asked to stop until its successor is READY. It serves on while it drains, so what clients notice is the longest wait.\n\n", rolls)
	fmt.Fprintf(w, "| group | of | min healthy | surge | start to READY | READY to READY | whole roll | requests | lost | longest wait |\n"+
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	var all rolled
	var answered, failed int
	groups := []struct {
		name                   string
		desired, healthy, most int
	}{
		{"testrunner", 1, 1, 1}, {"testrunner", 3, 2, 1}, {"testrunner", 3, 3, 3}, {"testrunner", 1, 0, 0},
		{"keyvalue-runner", 1, 0, 1}, {"keyvalue-runner", 1, 0, 0},
	}
	for i, k := range groups {
		g := runners("g", k.desired, "--initial-work", "0", "--work-duration", "1ms")
		put := func(l *load.Ledger, ctx context.Context, c *load.Client, _ string) { l.Ask(ctx, c, nil) }
		if k.name == "keyvalue-runner" {
			g.Command, g.Env = []string{server, "--db", filepath.Join(dir, fmt.Sprint(i))}, nil
			put = func(l *load.Ledger, ctx context.Context, c *load.Client, name string) { l.Write(ctx, name, c, nil) }
		}
		g.MinHealthy, g.MaxSurge = launcher.Int(k.healthy), launcher.Int(k.most)
		g.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
		r, err := underLoad(filepath.Join(dir, "d"), g, put, func(ctx context.Context, m *launcher.Manager, r *rolled) (err error) {
			for range rolls {
				if err == nil {
					err = r.roll(ctx, m, g.Name)
				}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		requests, longest := r.Sent()
		gap := "–"
		if k.desired == 1 {
			gap = spread(r.gaps)
		}
		fmt.Fprintf(w, "| %s | %d | %d | %d | %s | %s | %s | %d | %d | %v |\n", k.name, k.desired, k.healthy, k.most, spread(r.starts), gap,
			spread(r.whole), requests, len(r.Failures()), round(longest))
		all.starts, all.whole, all.rolledBack = append(all.starts, r.starts...), append(all.whole, r.whole...), all.rolledBack+r.rolledBack
		answered, failed = answered+requests-len(r.Failures()), failed+len(r.Failures())
	}
	fmt.Fprintf(w, "\n| | target | measured |\n| --- | ---: | ---: |\n")
	for _, row := range [][3]string{
		{"rolls that were completed, with no request lost", "> 99 %", fmt.Sprintf("%d of %d, %d lost", len(all.whole), len(groups)*rolls, failed)},
		{"rolls that were rolled back", "< 1 %", fmt.Sprint(all.rolledBack)},
		{"start to READY, median", "< 5 s", round(figures.Median(all.starts)).String()},
		{"start to READY, 99 of 100", "< 15 s", round(figures.Quantile(all.starts, 0.99)).String()},
		{"requests answered", "100 %", fmt.Sprintf("%.4g %%", 100*float64(answered)/float64(answered+failed))},
	} {
		figures.Row(w, row[:]...)
	}
	mustBeNone("requests lost in replacements", failed)
	return nil
}

// A rolled value contains the measurements of the rolls of one group.
type rolled struct {
	load.Ledger
	starts, gaps, whole []time.Duration
	rolledBack          int
}

// underLoad runs a group and calls the function do while four clients send requests.
func underLoad(dir string, g launcher.GroupConfig, put func(*load.Ledger, context.Context, *load.Client, string),
	do func(context.Context, *launcher.Manager, *rolled) error) (*rolled, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{g}})
	if err != nil {
		return nil, err
	}
	defer func() { m.Shutdown().Wait(ctx) }()
	if err := m.Ready(ctx); err != nil {
		return nil, err
	}
	r := &rolled{}
	addr := m.Addrs(g.Name)[0].String()
	loaded, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() {
			c := &load.Client{KeepAlive: n%2 == 0, Dial: func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			}}
			put(&r.Ledger, loaded, c, fmt.Sprint("client", n))
		})
	}
	err = do(ctx, m, r)
	stop()
	clients.Wait()
	return r, err
}

// roll rolls the group once.
func (r *rolled) roll(ctx context.Context, m *launcher.Manager, name string) error {
	events, stop := m.Watch()
	defer stop()
	if err := m.Restart(ctx, name, "measurement"); err != nil {
		return err
	}
	var asked, ready, begin time.Time
	spawned := map[string]time.Time{}
	for e := range events {
		switch {
		case e.Kind == launcher.RollBegun:
			begin = e.Time
		case e.To == launcher.Spawning:
			spawned[e.Process] = e.Time
		case e.To == launcher.Ready:
			ready = e.Time
			if at, ok := spawned[e.Process]; ok { // ignore processes that were started before the roll
				r.starts = append(r.starts, e.Time.Sub(at))
			}
		case e.To == launcher.ShutdownRequested:
			asked = e.Time
		case e.Kind == launcher.RollDone:
			r.gaps = append(r.gaps, ready.Sub(asked))
			r.whole = append(r.whole, e.Time.Sub(begin))
			return nil
		case e.Kind == launcher.RollFailed:
			if e.Roll == "rolled back" {
				r.rolledBack++
			}
			return nil
		}
	}
	return fmt.Errorf("the stream of events ended before the end of the roll of %s", name)
}
