//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// A cost is what a launcher takes that has nothing to do but to ask its processes every two seconds how they are.
type cost struct {
	Ready      time.Duration // until all were
	RSS        int64
	CPU        time.Duration // a second
	Goroutines int
	Threads    int
	Files      int
}

const idleFor = 10 * time.Second

// idle starts launchers in processes of their own, so that nobody else's memory is counted.
func idle(w io.Writer, most int) error {
	fmt.Fprintf(w, "\n## A launcher with nothing to do\n\nThe launcher alone, without its children, over %v; it asks each child every two seconds how it is.\n\n", idleFor)
	fmt.Fprintf(w, "| children | all READY after | memory (RSS) | CPU | goroutines | threads | open files |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, n := range []int{0, 1, most} {
		dir, done, err := shortDir()
		if err != nil {
			return err
		}
		defer done()
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd := exec.Command(self, strconv.Itoa(n), filepath.Join(dir, "d"))
		cmd.Env = append(os.Environ(), role+"=idle")
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return err
		}
		var c cost
		if err := json.Unmarshal(text, &c); err != nil {
			return err
		}
		fmt.Fprintf(w, "| %d | %v | %.1f MiB | %.2f %% of one processor | %d | %d | %d |\n", n, round(c.Ready), float64(c.RSS)/(1<<20),
			100*c.CPU.Seconds(), c.Goroutines, c.Threads, c.Files)
	}
	return nil
}

// idleLauncher is one of these.
func idleLauncher(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	g := runners("idle", n, "--initial-work", "0")
	g.HealthCheckTimeout = 2 * time.Minute
	begun := time.Now()
	m, err := launcher.Start(ctx, launcher.Config{Dir: args[1], Groups: []launcher.GroupConfig{g}})
	if err != nil {
		return err
	}
	defer func() { m.Shutdown().Wait(ctx) }()
	if err := m.Ready(ctx); err != nil {
		return err
	}
	c := cost{Ready: time.Since(begun)}
	time.Sleep(2 * time.Second) // what the start has left to do
	before, err := spent()
	if err != nil {
		return err
	}
	time.Sleep(idleFor)
	after, err := spent()
	if err != nil {
		return err
	}
	c.CPU = (after - before) / time.Duration(idleFor/time.Second)
	c.Goroutines = runtime.NumGoroutine()
	c.RSS, c.Threads = self("VmRSS:")*1024, int(self("Threads:"))
	files, _ := os.ReadDir("/proc/self/fd")
	c.Files = len(files)
	return json.NewEncoder(os.Stdout).Encode(c)
}

func spent() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// self reads a number from /proc/self/status, 0 where there is none.
func self(key string) int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), key); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}
