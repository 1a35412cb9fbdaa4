package eventloop_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/eventloop"
)

// If the environment contains asIdle, the test binary runs idle loops.
const asIdle = "EVENTLOOP_TEST_AS_IDLE"

func init() {
	if os.Getenv(asIdle) == "" {
		return
	}
	for range 10 {
		l := eventloop.New(context.Background())
		if err := l.Start(); err != nil {
			panic(err)
		}
		l.After(24*time.Hour, func() {})
		ran := make(chan struct{})
		l.Post(func() { close(ran) })
		<-ran
	}
	fmt.Println("idle")
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// A loop with nothing to do uses no processor time. In a separate process with idle loops, no
// thread runs between two samples. The Go runtime needs some time to become idle after the start,
// so the test takes many samples. A loop that woke up periodically would fail all of them.
func TestLoop_UsesNoProcessorTimeWhenIdle(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	// With GOGC=off, the runtime does not collect garbage every two minutes.
	cmd.Env = append(os.Environ(), asIdle+"=1", "GOGC=off")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "idle\n" {
		t.Fatalf("the program printed %q, %v", line, err)
	}
	last := threadTimes(t, cmd.Process.Pid)
	for range 20 {
		time.Sleep(500 * time.Millisecond)
		now := threadTimes(t, cmd.Process.Pid)
		if now == last {
			return
		}
		last = now
	}
	t.Errorf("the threads of idle loops keep running: %s", last)
}

// threadTimes returns for each thread its processor time in ticks, and how often the thread was put
// to sleep.
func threadTimes(t *testing.T, pid int) string {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("cannot read the threads: %v", err)
	}
	var all strings.Builder
	for _, task := range tasks {
		stat, err := os.ReadFile(filepath.Join(task, "stat"))
		if err != nil {
			continue // the thread has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		fmt.Fprintf(&all, "%s: %s+%s ticks", filepath.Base(task), fields[11], fields[12])
		status, _ := os.ReadFile(filepath.Join(task, "status"))
		for line := range strings.Lines(string(status)) {
			if strings.Contains(line, "ctxt_switches") {
				fmt.Fprintf(&all, ", %s", strings.Join(strings.Fields(line), " "))
			}
		}
		all.WriteString("\n")
	}
	return all.String()
}
