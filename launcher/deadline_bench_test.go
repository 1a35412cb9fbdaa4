//go:build linux

package launcher_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// BenchmarkDeadline stops processes that do not stop, and reports by how much the end of the worst one missed the configured
// bound, with the reap. An iteration is one shutdown. What is done and in which order is for TestStuckProcesses to say.
func BenchmarkDeadline(b *testing.B) {
	const grace, sigterm = 200 * time.Millisecond, 200 * time.Millisecond
	for _, c := range []struct {
		name, role, behavior string
		bound                time.Duration
		stop                 bool
	}{
		{name: "a call that hangs", role: "hang", bound: grace},
		{name: "a socket that nobody answers at", role: "black hole", bound: sigterm},
		{name: "SIGSTOP", role: "testrunner", behavior: "hang", bound: grace + sigterm, stop: true},
		{name: "a full pipe", role: "noisy", behavior: "hang", bound: grace + sigterm},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir, err := os.MkdirTemp("", "swb")
			if err != nil {
				b.Fatal(err)
			}
			defer os.RemoveAll(dir)
			var worst time.Duration
			for b.Loop() {
				g := group("odd", 1, c.role)
				if c.behavior != "" {
					g.Command = append(g.Command, "--process-id", "{id}", "--work-duration", "1ms", "--behavior", c.behavior)
				}
				g.Shutdown.Grace, g.Shutdown.SIGTERMTimeout, g.Restart.Policy = grace, sigterm, launcher.Never
				g.LivenessFailures = 1000
				if c.role == "black hole" {
					g.HealthCheckTimeout = 300 * time.Millisecond
				}
				m, err := launcher.Start(context.Background(), launcher.Config{Dir: filepath.Join(dir, "d"), Groups: []launcher.GroupConfig{g}})
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(context.Background(), tooLong)
				if c.role != "black hole" {
					if err := m.Ready(ctx); err != nil {
						b.Fatal(err)
					}
				}
				if c.stop {
					st, _ := m.Process("odd-1")
					syscall.Kill(st.PID, syscall.SIGSTOP)
				}
				if c.role != "black hole" {
					m.StopProcess("odd-1", launcher.Stop{NoReplacement: true})
				}
				for { // it may not have been begun
					st, err := m.Wait(ctx, "odd-1")
					if err == nil {
						worst = max(worst, st.Took()-c.bound)
						break
					}
				}
				m.Shutdown().Wait(ctx)
				cancel()
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "ms-late")
		})
	}
}
