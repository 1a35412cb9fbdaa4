//go:build unix

package launcher_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/swansong-go/swansong/launcher"
)

// benchmarked starts a group of one idle test runner. docs/measured/launcher-figures.md has figures
// of larger groups.
func benchmarked(b *testing.B) *launcher.Manager {
	b.Helper()
	dir, err := os.MkdirTemp("", "swb")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	m, err := launcher.Start(context.Background(), launcher.Config{
		Dir: filepath.Join(dir, "d"), Groups: []launcher.GroupConfig{runners("web", 1, "--initial-work", "0")},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := m.Ready(ctx); err != nil {
		b.Fatal(err)
	}
	return m
}

func drain(b *testing.B, m *launcher.Manager) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := m.Shutdown().Wait(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkShutdown measures the time from the call of Shutdown until a process without work has
// been reaped.
func BenchmarkShutdown(b *testing.B) {
	for range b.N {
		b.StopTimer()
		m := benchmarked(b)
		b.StartTimer()
		drain(b, m)
	}
}

// BenchmarkRoll measures the replacement of one process.
func BenchmarkRoll(b *testing.B) {
	m := benchmarked(b)
	defer drain(b, m)
	for b.Loop() {
		if err := m.Restart(context.Background(), "web", "benchmark"); err != nil {
			b.Fatal(err)
		}
	}
}
