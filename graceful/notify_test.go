package graceful_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// A systemd is what listens at NOTIFY_SOCKET.
type systemd struct {
	*testing.T
	*net.UnixConn
}

func listen(t *testing.T, name string) systemd {
	if runtime.GOOS == "windows" {
		t.Skip("there is no systemd")
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(tooLong))
	return systemd{t, conn}
}

// hears returns the next message.
func (s systemd) hears() string {
	s.Helper()
	b := make([]byte, 4096)
	n, err := s.Read(b)
	if err != nil {
		s.Fatal(err)
	}
	return string(b[:n])
}

func TestNotify(t *testing.T) {
	sockets := map[string]string{"path": filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		sockets["abstract"] = fmt.Sprintf("@swansong-%d", os.Getpid())
	}
	for kind, name := range sockets {
		t.Run(kind, func(t *testing.T) {
			s := listen(t, name)
			p := start(t, "extends", "NOTIFY_SOCKET="+name)
			equal(t, "first", s.hears(), "READY=1")
			p.signal(syscall.SIGTERM)
			equal(t, "second", s.hears(), "STOPPING=1")
			third := s.hears()
			var usec int64
			if n, err := fmt.Sscanf(third, "EXTEND_TIMEOUT_USEC=%d", &usec); n != 1 || err != nil {
				t.Fatalf("third: %q", third)
			}
			// Soft would have ended an hour after the signal, and ends ninety minutes after it; then comes an hour of Hard.
			if left := time.Duration(usec) * time.Microsecond; left <= 2*time.Hour || left > 2*time.Hour+30*time.Minute+time.Second {
				t.Errorf("asked for %v", left)
			}
			equal(t, "exit code", p.ends(), 0)
			if !strings.Contains(p.output(), "extended by about 30m0s") {
				t.Errorf("no extension:\n%s", p.output())
			}
		})
	}
}

// In the lame duck, the time until the end has three rungs in it.
func TestNotify_LameDuck(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	s := listen(t, name)
	p := start(t, "extends-duck", "NOTIFY_SOCKET="+name)
	p.until("Serving 0")
	p.signal(syscall.SIGTERM)
	equal(t, "first", s.hears(), "STOPPING=1")
	var usec int64
	if _, err := fmt.Sscanf(s.hears(), "EXTEND_TIMEOUT_USEC=%d", &usec); err != nil {
		t.Fatal(err)
	}
	if left := time.Duration(usec) * time.Microsecond; left <= 3*time.Hour || left > 3*time.Hour+30*time.Minute+time.Second {
		t.Errorf("asked for %v", left)
	}
	equal(t, "exit code", p.ends(), 0)
}

// In a bubble the messages have times: the watchdog is told at half of what it waits for, and what systemd is asked for is the
// time until the end of the ladder and a second more.
func TestNotify_Times(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	s := listen(t, name)
	t.Setenv("NOTIFY_SOCKET", name)
	t.Setenv("WATCHDOG_USEC", "4000000")
	bubble(t, func(b *testRun) {
		b.run(func(s *ctxshutdown.Swansong) error { // which is told to stop after a second
			hold(s, "jobs", s, 6*time.Second)
			<-s.Done()
			synctest.Wait() // systemd knows
			graceful.Extend(s, 15*time.Second, "")
			return nil
		})
	})
	last, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	io.WriteString(last, "that was all")
	want := []string{"STOPPING=1", "EXTEND_TIMEOUT_USEC=18000000", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1", "that was all"} // after 2, 4 and 6 of 7 s
	var got []string
	for len(got) == 0 || got[len(got)-1] != "that was all" {
		got = append(got, s.hears())
	}
	equal(t, "messages", got, want)
}

// Nobody listens, or there is no such socket: that is logged, and all goes on.
func TestNotify_Nobody(t *testing.T) {
	p := start(t, "extends", "NOTIFY_SOCKET="+filepath.Join(t.TempDir(), "nobody"))
	p.until("Serving 0")
	p.signal(syscall.SIGTERM)
	equal(t, "exit code", p.ends(), 0)
	for _, message := range []string{"READY=1", "STOPPING=1", "EXTEND_TIMEOUT_USEC="} {
		if !strings.Contains(p.output(), `level=WARN msg="service manager not told" message="`+message) {
			t.Errorf("%s is missing in the log:\n%s", message, p.output())
		}
	}
}

// Somebody listens who never reads: the drain does not wait for that.
func TestNotify_FullSocket(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	s := listen(t, name)
	full, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	full.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = full.Write([]byte("X=1"))
	}
	p := start(t, "extends", "NOTIFY_SOCKET="+name)
	p.until("Serving 0")
	p.signal(syscall.SIGTERM)
	equal(t, "exit code", p.ends(), 0)
	s.Close()
}

func TestWatchdog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	s := listen(t, name)
	p := start(t, "soft", "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=20000")
	for range 3 {
		equal(t, "message", s.hears(), "WATCHDOG=1")
	}
	p.signal(syscall.SIGTERM)
	equal(t, "exit code", p.ends(), 0)
}

// A watchdog that is meant for another process, or makes no sense, is left alone.
func TestWatchdog_NotOurs(t *testing.T) {
	for _, env := range []string{"WATCHDOG_PID=1", "WATCHDOG_USEC=0", "WATCHDOG_USEC=-5", "WATCHDOG_USEC=soon"} {
		t.Run(env, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "notify")
			s := listen(t, name)
			p := start(t, "extends", "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=2000", env)
			equal(t, "first", s.hears(), "READY=1")
			p.signal(syscall.SIGTERM)
			equal(t, "second", s.hears(), "STOPPING=1")
			equal(t, "exit code", p.ends(), 0)
		})
	}
}
