package graceful_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A systemd is a stand-in for the service manager. It listens on a notification socket.
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

// next returns the next message that the socket receives.
func (s systemd) next() string {
	s.Helper()
	b := make([]byte, 4096)
	n, err := s.Read(b)
	if err != nil {
		s.Fatal(err)
	}
	return string(b[:n])
}

func TestNotify_NotifiesSystemdOfEachPhase(t *testing.T) {
	sockets := map[string]string{"path": filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		sockets["abstract"] = fmt.Sprintf("@swansong-%d", os.Getpid())
	}
	for kind, name := range sockets {
		t.Run(kind, func(t *testing.T) {
			s := listen(t, name)
			p := start(t, "extends", "NOTIFY_SOCKET="+name)
			testkit.Equal(t, "first", s.next(), "READY=1")
			p.signal(syscall.SIGTERM)
			testkit.Equal(t, "second", s.next(), "STOPPING=1")
			third := s.next()
			var usec int64
			if n, err := fmt.Sscanf(third, "EXTEND_TIMEOUT_USEC=%d", &usec); n != 1 || err != nil {
				t.Fatalf("the third message is %q", third)
			}
			// Without the extension, Soft would end one hour after the signal. With it, Soft ends
			// 90 minutes after the signal, and Hard takes another hour.
			if left := time.Duration(usec) * time.Microsecond; left <= 2*time.Hour || left > 2*time.Hour+30*time.Minute+time.Second {
				t.Errorf("the time that Run requested from systemd is %v", left)
			}
			testkit.Equal(t, "exit code", p.awaitExit(), 0)
			if !strings.Contains(p.output(), "extended by about 30m0s") {
				t.Errorf("no extension was granted:\n%s", p.output())
			}
		})
	}
}

// During LameDuck, the time that Run requests from systemd covers all three phases.
func TestNotify_TimeRequestedFromSystemdCoversAllPhases(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	s := listen(t, name)
	p := start(t, "extends-duck", "NOTIFY_SOCKET="+name)
	p.readUntil("Serving 0")
	p.signal(syscall.SIGTERM)
	testkit.Equal(t, "first", s.next(), "STOPPING=1")
	var usec int64
	if _, err := fmt.Sscanf(s.next(), "EXTEND_TIMEOUT_USEC=%d", &usec); err != nil {
		t.Fatal(err)
	}
	if left := time.Duration(usec) * time.Microsecond; left <= 3*time.Hour || left > 3*time.Hour+30*time.Minute+time.Second {
		t.Errorf("the time that Run requested from systemd is %v", left)
	}
	testkit.Equal(t, "exit code", p.awaitExit(), 0)
}

// Run notifies the watchdog at half of its interval. The time that Run requests from systemd ends
// one second after the last phase. After a second of draining, Run sends systemd a status that says
// what the drain waits for. The test runs in a synctest bubble, where the times of messages are
// exact.
func TestNotify_SendsWatchdogPingsAndTimeoutExtensionsDuringDrain(t *testing.T) {
	for _, c := range []struct {
		soft, extend time.Duration
		want         []string
	}{
		{10 * time.Second, 15 * time.Second, []string{"EXTEND_TIMEOUT_USEC=18000000", "STATUS=waiting for jobs ×1; cancelling them in 14 s"}},
		{24 * time.Hour, 24*time.Hour + 5*time.Second, []string{"EXTEND_TIMEOUT_USEC=86408000000", "STATUS=waiting for jobs ×1"}},
	} {
		want := slices.Concat([]string{"STOPPING=1"}, c.want, []string{"WATCHDOG=1", "WATCHDOG=1", "that was all"})
		testkit.Equal(t, fmt.Sprintf("messages with a Soft of %v", c.soft), messagesOfDrain(t, c.soft, c.extend), want)
	}
}

// messagesOfDrain returns what a program under systemd sends during a drain of five and a half
// seconds, in which it asks for more time.
func messagesOfDrain(t *testing.T, soft, extend time.Duration) (got []string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	s := listen(t, name)
	t.Setenv("NOTIFY_SOCKET", name)
	t.Setenv("WATCHDOG_USEC", "5000000")
	bubble(t, func(b *testRun) {
		b.run(func(s *ctxshutdown.Swansong) error { // the stop begins after one second
			hold(s, "jobs", s, 5500*time.Millisecond)
			<-s.Done()
			synctest.Wait() // wait until the message has been sent
			graceful.Extend(s, extend, "")
			return nil
		}, graceful.WithSoft(soft))
	})
	last, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	io.WriteString(last, "that was all")
	for len(got) == 0 || got[len(got)-1] != "that was all" {
		got = append(got, s.next())
	}
	return got
}

// If no process listens on the notification socket, or the socket does not exist, Run logs an error
// and continues.
func TestNotify_RunContinuesIfSocketHasNoListener(t *testing.T) {
	p := start(t, "extends", "NOTIFY_SOCKET="+filepath.Join(t.TempDir(), "nobody"))
	p.readUntil("Serving 0")
	p.signal(syscall.SIGTERM)
	testkit.Equal(t, "exit code", p.awaitExit(), 0)
	for _, message := range []string{"READY=1", "STOPPING=1", "EXTEND_TIMEOUT_USEC="} {
		if !strings.Contains(p.output(), `level=WARN msg="service manager could not be notified" message="`+message) {
			t.Errorf("%s is missing in the log:\n%s", message, p.output())
		}
	}
}

// If the process that listens on the notification socket never reads, the drain does not wait for
// it.
func TestNotify_DoesNotBlockOnFullSocket(t *testing.T) {
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
	p.readUntil("Serving 0")
	p.signal(syscall.SIGTERM)
	testkit.Equal(t, "exit code", p.awaitExit(), 0)
	s.Close()
}

func TestWatchdog_NotifiesSystemdInEachInterval(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	s := listen(t, name)
	p := start(t, "soft", "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=20000")
	for range 3 {
		testkit.Equal(t, "message", s.next(), "WATCHDOG=1")
	}
	p.signal(syscall.SIGTERM)
	testkit.Equal(t, "exit code", p.awaitExit(), 0)
}

// A watchdog interval that is invalid or meant for another process is ignored.
func TestWatchdog_IgnoresInvalidSettings(t *testing.T) {
	for _, env := range []string{"WATCHDOG_PID=1", "WATCHDOG_USEC=0", "WATCHDOG_USEC=-5", "WATCHDOG_USEC=soon"} {
		t.Run(env, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "notify")
			s := listen(t, name)
			p := start(t, "extends", "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=2000", env)
			testkit.Equal(t, "first", s.next(), "READY=1")
			p.signal(syscall.SIGTERM)
			testkit.Equal(t, "second", s.next(), "STOPPING=1")
			testkit.Equal(t, "exit code", p.awaitExit(), 0)
		})
	}
}
