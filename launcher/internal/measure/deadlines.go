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

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/launcher"
)

// Ways in which processes get stuck.
const (
	inCall   = "the call Shutdown is not answered"
	inSocket = "after READY, the socket accepts connections and data, and answers nothing"
	inStop   = "stopped by SIGSTOP"
	inStdout = "prints without end: the pipe is full"
)

// tolerance is how late a process may end after its deadline; see
// docs/internals/launcher.md#deadlines.
const tolerance = 100 * time.Millisecond

// deadlines stops stuck processes, n times for each way to be stuck. It prints how long after the
// configured limit the last process was reaped, and how long after that limit the launcher ended.
func deadlines(w io.Writer, n int) error {
	const grace, sigterm, total = 200 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond
	fmt.Fprintf(w, "\n## Deadlines\n\nProcesses that do not stop, deaf to SIGTERM too; %d shutdowns of each kind. The bound is %v of grace and %v after SIGTERM,\n"+
		"or a total deadline of %v. \"Late\" is the time from the bound until the last process has been reaped; the target is %v.\n"+
		"The launcher itself is done when it has written that to its state file, on the disk.\n\n", n, grace, sigterm, total, tolerance)
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
		g.Shutdown.Grace, g.Shutdown.GraceEnforced, g.Shutdown.SIGTERMTimeout = grace, true, sigterm
		// With Auto, the launcher could take a process that starts slowly on a busy machine for one
		// that is stopped by signals. It would then end the process at Max, and not after Grace.
		g.Protocol = launcher.GRPC
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
		fmt.Fprintf(w, "| %s | %d | %v | %v | %v | %d of %d | %v | %v |\n", name, c.count, bound, tenth(figures.Median(late)), tenth(slices.Max(late)), inTime, n,
			round(figures.Median(done)), round(slices.Max(done)))
	}
	return nil
}

func tenth(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// stopStuck starts a launcher with a group whose processes get stuck, and stops it. It returns how
// long it took until the processes, and the launcher, had ended.
func stopStuck(cfg launcher.Config, kind string, count int) (ended, drained time.Duration, err error) {
	dir, done, err := shortDir()
	if err != nil {
		return 0, 0, err
	}
	defer done()
	cfg.Dir = filepath.Join(dir, "d")
	fifo := filepath.Join(dir, "stuck")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		return 0, 0, err
	}
	cfg.Groups[0].Env = append(slices.Clip(cfg.Groups[0].Env), stuckEnv+"="+fifo)
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
		// os.Open blocks until the process opens the other end of the FIFO. The process opens it as
		// soon as it no longer reads its socket, or the pipe of its standard output is full.
		if f, err = os.Open(fifo); err == nil {
			f.Close()
		}
	}
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := m.Shutdown().Wait(ctx); err != nil {
		return 0, 0, err
	}
	drained = time.Since(begin)
	for i := range count {
		st, err := m.Process(fmt.Sprintf("stuck-%d", i+1))
		if err != nil {
			return 0, 0, err
		}
		if st.Outcome != launcher.Killed {
			return 0, 0, fmt.Errorf("%s ended with %v, want FORCED", st.ID, st.Outcome)
		}
		ended = max(ended, st.Ended.Sub(begin))
	}
	return ended, drained, nil
}
