//go:build linux

package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
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
)

// Who reads what the launcher prints may go away: it serves on, drains when it is told to, and its processes do not inherit that it
// has survived that.
func TestReadersGoAway(t *testing.T) {
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
		t.Cleanup(func() { cmd.Process.Kill() }) // should it not have come to its end
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
		for _, group := range []string{"web", "prints"} { // which is told on stderr, and prints
			equal(t, "a roll", s.must("restart", group, "--wait"), "all processes have been replaced\n")
		}
		equal(t, "SIGPIPE is ignored by a process", s.ignores("prints", syscall.SIGPIPE), false)
		cmd.Process.Signal(syscall.SIGTERM)
		reading.Wait()
		cmd.Wait()
		equal(t, fmt.Sprintf("how it ends without %q", gone), cmd.ProcessState.String(), "exit status 0")
	}
}

// Who reads what the launcher prints may also cease to read, as a pager does, or a terminal after ^S: it says that it is ready, takes
// a file over or refuses it, drains when it is told to, and ends.
func TestReadersStall(t *testing.T) {
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
		t.Cleanup(func() { cmd.Process.Kill() }) // should it not have come to its end
		want := "exit status 1"
		if text == web {
			want = "exit status 0"
			notified.SetReadDeadline(time.Now().Add(tooLong))
			for said := make([]byte, 1000); !strings.Contains(string(said), "READY=1"); {
				if _, err := notified.Read(said); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Remove(s.file()), syscall.Mkfifo(s.file(), 0o600)); err != nil {
				t.Fatal(err)
			}
			cmd.Process.Signal(syscall.SIGHUP)
			if err := os.WriteFile(s.file(), []byte("no file"), 0o600); err != nil { // when the launcher reads it
				t.Fatal(err)
			}
			if err := os.Remove(s.file()); err != nil {
				t.Fatal(err)
			}
			cmd.Process.Signal(syscall.SIGTERM)
		}
		select {
		case how := <-ended:
			equal(t, "how it ends", how, want)
		case <-time.After(tooLong):
			t.Fatal("it does not end")
		}
	}
}

// full is a pipe that is full, and that nobody reads.
func full(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	w.SetWriteDeadline(time.Now().Add(time.Millisecond))
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return w
}

// ignores reports whether the process of a group ignores a signal.
func (s *site) ignores(group string, sig syscall.Signal) bool {
	s.t.Helper()
	var h struct {
		Groups []struct {
			Group     string
			Processes []struct{ Pid string }
		}
	}
	if err := json.Unmarshal([]byte(s.must("status")), &h); err != nil {
		s.t.Fatal(err)
	}
	for _, g := range h.Groups {
		if g.Group != group {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%s/status", g.Processes[0].Pid))
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
