//go:build linux

package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
)

// If the reader of its output exits, the launcher continues, and drains when it is asked to. Its
// processes do not inherit how it handles SIGPIPE.
func TestRun_ContinuesWhenReaderOfOutputExits(t *testing.T) {
	s := newSite(t, web+"  - name: prints\n    command: sh\n    args: [-c, 'echo up; exec sleep 3600']\n    protocol: signals\n")
	for _, gone := range [][]string{{"stdout"}, {"stderr"}, {"stdout", "stderr"}} {
		cmd := exec.Command(command, "run", "-f", s.file())
		cmd.Env = s.environment()
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() }) // kills the launcher if it has not exited
		var reading sync.WaitGroup
		rest := func(name string, pipe io.ReadCloser) {
			if slices.Contains(gone, name) {
				pipe.Close()
			} else {
				reading.Go(func() { io.Copy(io.Discard, pipe) })
			}
		}
		rest("stderr", stderr)
		for lines := bufio.NewScanner(stdout); lines.Scan() && lines.Text() != "ready"; {
		}
		rest("stdout", stdout)
		for _, group := range []string{"web", "prints"} { // the launcher writes its log to stderr, and the output of the group prints to stdout
			testkit.Equal(t, "output of restart", s.mustRun("restart", group, "--wait"), "all processes have been replaced\n")
		}
		testkit.Equal(t, "processes ignore SIGPIPE", s.ignores("prints", syscall.SIGPIPE), false)
		cmd.Process.Signal(syscall.SIGTERM)
		reading.Wait()
		cmd.Wait()
		testkit.Equal(t, fmt.Sprintf("exit without a reader of %q", gone), cmd.ProcessState.String(), "exit status 0")
	}
}

// If the reader of its output stops reading, as a pager does, the launcher still gets ready,
// reloads, drains and exits.
func TestRun_ContinuesWhenReaderOfOutputStalls(t *testing.T) {
	s := newSite(t, web)
	socket := filepath.Join(s.dir, "notify")
	notified, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { notified.Close() })
	for _, text := range []string{web, "no file"} {
		s.write(text)
		cmd := exec.Command(command, "run", "-f", s.file())
		cmd.Env = append(s.environment(), "NOTIFY_SOCKET="+socket)
		cmd.Stdout, cmd.Stderr = full(t), full(t)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan string, 1)
		go func() {
			cmd.Wait()
			ended <- cmd.ProcessState.String()
		}()
		t.Cleanup(func() { cmd.Process.Kill() }) // kills the launcher if it has not exited
		want := "exit status 1"
		if text == web {
			want = "exit status 0"
			notified.SetReadDeadline(time.Now().Add(tooLong))
			for said := make([]byte, 1000); !strings.Contains(string(said), "READY=1"); {
				if _, err := notified.Read(said); err != nil {
					t.Fatal(err)
				}
			}
			// The reload waits for a process that never becomes ready. So the stop interrupts it,
			// and the launcher logs that.
			s.write(strings.Replace(web, `"{id}"`, `"{id}", --ready-after, "-1s"`, 1) + "    protocol: grpc\n")
			cmd.Process.Signal(syscall.SIGHUP)
			s.waitUntil("web is being rolled", func(h health) bool { return len(h.Groups[0].Processes) == 2 })
			cmd.Process.Signal(syscall.SIGTERM)
		}
		select {
		case how := <-ended:
			testkit.Equal(t, "exit", how, want)
		case <-time.After(tooLong):
			t.Fatal("the launcher does not exit")
		}
	}
}

// full returns a pipe that is full and has no reader.
func full(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var last error
	err = raw.Control(func(fd uintptr) {
		for last == nil {
			_, last = syscall.Write(int(fd), make([]byte, 4096))
		}
	})
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "error of the last write", last, error(syscall.EAGAIN))
	return w
}

// ignores reports whether the process of a group ignores a signal.
func (s *site) ignores(group string, sig syscall.Signal) bool {
	s.t.Helper()
	var h struct {
		Groups []struct {
			Group     string
			Processes []struct{ Pid int }
		}
	}
	if err := json.Unmarshal([]byte(s.mustRun("status")), &h); err != nil {
		s.t.Fatal(err)
	}
	for _, g := range h.Groups {
		if g.Group != group {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.Processes[0].Pid))
		if err != nil {
			s.t.Fatal(err)
		}
		_, mask, _ := strings.Cut(string(text), "SigIgn:\t")
		mask, _, _ = strings.Cut(mask, "\n")
		bits, err := strconv.ParseUint(mask, 16, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return bits&(1<<(sig-1)) != 0
	}
	s.t.Fatalf("there is no group %s", group)
	return false
}
