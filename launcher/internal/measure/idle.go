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
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/launcher"
)

// A cost tells what a launcher uses while it only checks its processes every two seconds.
type cost struct {
	Ready      time.Duration // time from the start of the launcher until all processes were ready
	RSS        int64
	CPU        time.Duration // CPU time that the launcher uses in a second
	Goroutines int
	Threads    int
	Files      int
}

const idleFor = 10 * time.Second

// idle measures launchers with different numbers of children. Each launcher is a process of its
// own, so its memory can be measured separately.
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

// idleLauncher is the main function of a process that runs an idle launcher.
func idleLauncher(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	g := runners("idle", n, "--initial-work", "0")
	g.HealthCheckTimeout = 2 * time.Minute
	begin := time.Now()
	m, err := launcher.Start(ctx, launcher.Config{Dir: args[1], Groups: []launcher.GroupConfig{g}})
	if err != nil {
		return err
	}
	defer func() { m.Shutdown().Wait(ctx) }()
	if err := m.Ready(ctx); err != nil {
		return err
	}
	c := cost{Ready: time.Since(begin)}
	time.Sleep(2 * time.Second) // by then the launcher has finished the work of its start
	before := figures.CPUTime()
	time.Sleep(idleFor)
	c.CPU = (figures.CPUTime() - before) / time.Duration(idleFor/time.Second)
	c.Goroutines = runtime.NumGoroutine()
	c.RSS, c.Threads = procStatus("VmRSS:")*1024, int(procStatus("Threads:"))
	files, _ := os.ReadDir("/proc/self/fd")
	c.Files = len(files)
	return json.NewEncoder(os.Stdout).Encode(c)
}

// procStatus returns a number from /proc/self/status, and 0 if it is missing.
func procStatus(key string) int64 {
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
