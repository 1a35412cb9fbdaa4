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

// asIdle has the test binary be a program with loops that have nothing to do.
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

// An idle loop uses no processor: in a process of its own, no thread runs at all between two looks. How soon the runtime
// comes to rest after the start is its own affair, so there may be many looks; a loop that woke up now and then would fail
// all of them.
func TestIdleLoopsDoNothing(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asIdle+"=1", "GOGC=off") // the runtime collects every two minutes, whatever happens
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
		t.Fatalf("the program says %q, %v", line, err)
	}
	last := runs(t, cmd.Process.Pid)
	for range 20 {
		time.Sleep(500 * time.Millisecond)
		now := runs(t, cmd.Process.Pid)
		if now == last {
			return
		}
		last = now
	}
	t.Errorf("the threads keep running: %s", last)
}

// runs returns, for each thread, its processor time in ticks and how often it was put to sleep.
func runs(t *testing.T, pid int) string {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	var all strings.Builder
	for _, task := range tasks {
		stat, err := os.ReadFile(filepath.Join(task, "stat"))
		if err != nil {
			continue // it has just ended
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
