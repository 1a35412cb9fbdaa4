//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// What processes get stuck in.
const (
	inCall   = "the call Shutdown is not answered"
	inSocket = "after READY, the socket takes everything and answers nothing"
	inStop   = "stopped by SIGSTOP"
	inStdout = "prints without end: the pipe is full"
)

// tolerance is what the launcher may be late by: its fourth bar.
const tolerance = 100 * time.Millisecond

// deadlines stops processes that do not stop, n times for each way to be stuck, and tells by how much the last end, with the
// reap, missed the configured bound, and by how much the launcher's own end did.
func deadlines(w io.Writer, n int) error {
	const grace, sigterm, total = 200 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond
	fmt.Fprintf(w, "\n## Deadlines\n\nProcesses that do not stop, deaf to SIGTERM too; %d shutdowns of each kind. The bound is %v of grace and %v after SIGTERM,\n"+
		"or a total deadline of %v. Late is when the last process has been reaped: at most %v after the bound is wanted. The launcher\n"+
		"itself is done when that is in its state file, on the disk.\n\n", n, grace, sigterm, total, tolerance)
	fmt.Fprintf(w, "| | processes | bound | late, median | late at most | in time | launcher done, late | at most |\n"+
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range []struct {
		kind    string
		count   int
		byTotal bool
	}{
		{kind: inCall, count: 1}, {kind: inSocket, count: 1}, {kind: inStop, count: 1}, {kind: inStdout, count: 1},
		{kind: inCall, count: 20}, {kind: inCall, count: 20, byTotal: true},
	} {
		g := launcher.GroupConfig{Name: "stuck", Desired: c.count, LivenessFailures: 1000}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		g.Command, g.Env = []string{self, c.kind}, []string{role + "=stuck", "GOMAXPROCS=1"}
		g.Shutdown.Grace, g.Shutdown.SIGTERMTimeout = grace, sigterm
		g.Restart.Policy = launcher.Never
		cfg := launcher.Config{Groups: []launcher.GroupConfig{g}}
		bound, name := grace+sigterm, c.kind
		if c.byTotal {
			cfg.TotalDeadline, bound, name = total, total, c.kind+", total deadline"
		}
		var late, done []time.Duration
		inTime := 0
		for range n {
			ended, drained, err := stopStuck(cfg, c.kind, c.count)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			late, done = append(late, ended-bound), append(done, drained-bound)
			if ended-bound <= tolerance {
				inTime++
			}
		}
		slices.Sort(late)
		slices.Sort(done)
		fmt.Fprintf(w, "| %s | %d | %v | %v | %v | %d of %d | %v | %v |\n", name, c.count, bound, tenth(at(late, 50)), tenth(late[n-1]), inTime, n,
			round(at(done, 50)), round(done[n-1]))
	}
	return nil
}

func tenth(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// stopStuck starts the only group of a launcher, has its processes get stuck, and returns how long it takes until they have
// ended, and until the launcher has.
func stopStuck(cfg launcher.Config, kind string, count int) (ended, drained time.Duration, err error) {
	dir, done, err := shortDir()
	if err != nil {
		return 0, 0, err
	}
	defer done()
	cfg.Dir = filepath.Join(dir, "d")
	fifo := filepath.Join(dir, "told")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		return 0, 0, err
	}
	cfg.Groups[0].Env = append(slices.Clip(cfg.Groups[0].Env), told+"="+fifo)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, err := launcher.Start(ctx, cfg)
	if err != nil {
		return 0, 0, err
	}
	if err := m.Ready(ctx); err != nil {
		return 0, 0, err
	}
	first, err := m.Process("stuck-1")
	if err != nil {
		return 0, 0, err
	}
	switch kind {
	case inSocket:
		err = syscall.Kill(first.PID, syscall.SIGUSR1)
	case inStop:
		err = syscall.Kill(first.PID, syscall.SIGSTOP)
	}
	if err == nil && (kind == inSocket || kind == inStdout) {
		var f *os.File
		if f, err = os.Open(fifo); err == nil { // it has told
			f.Close()
		}
	}
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if err := m.Shutdown().Wait(ctx); err != nil {
		return 0, 0, err
	}
	drained = time.Since(begun)
	for i := range count {
		st, err := m.Process(fmt.Sprintf("stuck-%d", i+1))
		if err != nil {
			return 0, 0, err
		}
		if st.Outcome != launcher.Killed {
			return 0, 0, fmt.Errorf("%s ended with %v, and not because it was killed", st.ID, st.Outcome)
		}
		ended = max(ended, st.Ended.Sub(begun))
	}
	return ended, drained, nil
}
