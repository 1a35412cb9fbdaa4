package notify_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/notify"
)

func TestParse_ReturnsFieldsOfMessage(t *testing.T) {
	for text, want := range map[string]notify.Message{
		"READY=1":                                  {Ready: true},
		"READY=1\nSTATUS=all = well\n":             {Ready: true, Status: "all = well"},
		"STOPPING=1\nREADY=0":                      {Stopping: true},
		"WATCHDOG=1":                               {Watchdog: true},
		"WATCHDOG=trigger":                         {WatchdogTrigger: true},
		"WATCHDOG_USEC=1500000":                    {WatchdogPeriod: 1500 * time.Millisecond},
		"EXTEND_TIMEOUT_USEC=2000000":              {ExtendTimeout: 2 * time.Second},
		"EXTEND_TIMEOUT_USEC=-1":                   {},
		"WATCHDOG_USEC=99999999999999":             {WatchdogPeriod: 24 * time.Hour},
		"MAINPID=12":                               {MainPID: 12},
		"MAINPID=-1\nMAINPID=0\nMAINPID":           {},
		"RELOADING=1\nFDSTORE=1\n=\n\x00":          {},
		"ready=1\n READY=1":                        {},
		"STATUS=" + strings.Repeat("é", 600) + "x": {Status: strings.Repeat("é", 512)},
		"STATUS=\xff":                              {Status: "�"},
	} {
		testkit.Equal(t, strings.ToValidUTF8(text[:min(len(text), 40)], "?"), notify.Parse(text), want)
	}
}

// listen returns a socket and a channel of the messages that it has accepted. The socket accepts
// the messages of this process if allowed is true.
func listen(t *testing.T, allowed bool) (path string, s *notify.Socket, received chan notify.Message) {
	t.Helper()
	path, received = filepath.Join(t.TempDir(), "n"), make(chan notify.Message, 10)
	s, err := notify.Listen(path, nil, open{}, func(pid int) bool {
		if pid != os.Getpid() {
			t.Errorf("the sender is %d, want %d", pid, os.Getpid())
		}
		return allowed
	}, func(m notify.Message) { received <- m })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve() }()
	t.Cleanup(func() { s.Close(); <-done })
	return path, s, received
}

// send sends a message, with files.
func send(t *testing.T, path, text string, files ...int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	var rights []byte
	if len(files) > 0 {
		rights = syscall.UnixRights(files...)
	}
	if err := syscall.Sendmsg(fd, []byte(text), rights, &syscall.SockaddrUnix{Name: path}, 0); err != nil {
		t.Fatal(err)
	}
}

func TestSocket_HandlesMessagesInOrderAndDropsLongOnes(t *testing.T) {
	path, s, received := listen(t, true)
	send(t, path, "STATUS=one")
	send(t, path, "READY=1\nSTATUS=two")
	testkit.Equal(t, "first message", <-received, notify.Message{Status: "one"})
	testkit.Equal(t, "second message", <-received, notify.Message{Ready: true, Status: "two"})
	send(t, path, "STATUS="+strings.Repeat("x", 5000)) // longer than a message may be, so it is dropped
	send(t, path, "")
	s.Drain()
	testkit.Equal(t, "message after a long one", <-received, notify.Message{})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has the mode %v, %v", info.Mode(), err)
	}
}

// Whenever a message of the process has been handled, the process sends another one. Drain still
// returns.
func TestSocket_DrainReturnsWhileMessagesKeepComing(t *testing.T) {
	path, handled := filepath.Join(t.TempDir(), "n"), 0
	s, err := notify.Listen(path, nil, open{}, func(int) bool { return true }, func(notify.Message) {
		if handled++; handled > 10_000 {
			t.Fatal("Drain does not return")
		}
		send(t, path, "STATUS=again")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	send(t, path, "STATUS=first")
	s.Drain()
	testkit.Equal(t, "handled messages", handled, 1000)
}

// Messages of a process that is not allowed are dropped.
func TestSocket_DropsMessagesOfProcessesNotAllowed(t *testing.T) {
	path, s, received := listen(t, false)
	send(t, path, "READY=1")
	s.Drain()
	s.Drain() // waits until Serve has handled a message that Serve may be reading at the moment
	select {
	case m := <-received:
		t.Errorf("the message was handled: %+v", m)
	default:
	}
}

// A file that comes with a message is closed, after the message has been handled: the sender of
// BARRIER=1 waits for that.
func TestSocket_ClosesFilesAfterMessage(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		path, _, received := listen(t, allowed)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		send(t, path, "READY=1")
		send(t, path, "BARRIER=1", int(w.Fd()))
		w.Close()
		if _, err := r.Read(make([]byte, 1)); err == nil || err.Error() != "EOF" {
			t.Fatalf("reading from the barrier: %v", err)
		}
		if allowed {
			testkit.Equal(t, "message before the barrier", len(received), 2)
		}
	}
}

// The real systemd-notify waits for its barrier, and its messages arrive.
func TestSocket_UnderstandsSystemdNotify(t *testing.T) {
	program, err := exec.LookPath("systemd-notify")
	if err != nil {
		t.Fatal(err)
	}
	path, received := filepath.Join(t.TempDir(), "n"), make(chan notify.Message, 10)
	senders := make(chan int, 10)
	s, err := notify.Listen(path, nil, open{}, func(pid int) bool { senders <- pid; return true }, func(m notify.Message) { received <- m })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve() }()
	defer func() { s.Close(); <-done }()
	cmd := exec.Command(program, "--ready", "--status=serving")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := <-received
	testkit.Equal(t, "status", m.Status, "serving")
	testkit.Equal(t, "ready", m.Ready, true)
	if sender := <-senders; sender <= 0 {
		t.Errorf("the sender is %d", sender)
	}
}

func TestListen_RefusesLongPath(t *testing.T) {
	if _, err := notify.Listen("/tmp/"+strings.Repeat("x", 200), nil, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "at most 103 bytes") {
		t.Errorf("%v", err)
	}
}

// open is a gate that is always open.
type open struct{}

func (open) Enter() {}
func (open) Leave() {}
