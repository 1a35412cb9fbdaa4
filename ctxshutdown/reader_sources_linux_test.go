package ctxshutdown_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestReader_EndsAtStopForEveryKindOfSourceOnLinux(t *testing.T) {
	testOrigins(t, []origin{
		{"FIFO", woken, true, "IO wait", func(t *testing.T) (io.Reader, io.Writer) {
			path := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			f := openFile(t, path)
			return f, f
		}},
		{"terminal that Go opened", woken, true, "IO wait", func(t *testing.T) (io.Reader, io.Writer) {
			keyboard, terminal := openTerminal(t)
			return terminal, keyboard
		}},
		{"the other end of a terminal", woken, true, "IO wait", func(t *testing.T) (io.Reader, io.Writer) {
			screen, terminal := openTerminal(t)
			return screen, writerFunc(func(p []byte) (int, error) { return terminal.Write(p) })
		}},
		{"terminal that was inherited", atBoundary, false, "syscall", func(t *testing.T) (io.Reader, io.Writer) {
			keyboard, terminal := openTerminal(t)
			return inherited(t, terminal), keyboard
		}},
	})
}

func TestReader_ReturnsEOFForDevNull(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	r := ctxshutdown.NewReader(s, openFile(t, os.DevNull))
	wantResult(t, "Read", atEOF, readOnce(r))
	s.Shutdown()
	if r.CanWake() || r.Stopped() {
		t.Errorf("CanWake %v, Stopped %v; want neither", r.CanWake(), r.Stopped())
	}
	r = ctxshutdown.NewReader(s, openFile(t, os.DevNull))
	wantResult(t, "Read after the stop", atEOF, readOnce(r))
	checkStopped(t, r, false)
}

func openFile(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// openTerminal returns the two ends of a new pseudo-terminal that does not echo its input and does
// not change its output.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard = openFile(t, "/dev/ptmx")
	var number, unlocked int32
	ioctl(t, keyboard, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked))
	ioctl(t, keyboard, syscall.TIOCGPTN, unsafe.Pointer(&number))
	terminal = openFile(t, fmt.Sprintf("/dev/pts/%d", number))
	var settings syscall.Termios
	ioctl(t, terminal, syscall.TCGETS, unsafe.Pointer(&settings))
	settings.Lflag &^= syscall.ECHO
	settings.Oflag &^= syscall.OPOST
	ioctl(t, terminal, syscall.TCSETS, unsafe.Pointer(&settings))
	return keyboard, terminal
}

// ioctl makes the system call ioctl. It does not use the method Fd of the file, because Fd would
// switch the file to blocking mode.
func ioctl(t *testing.T, f *os.File, request uintptr, arg unsafe.Pointer) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg)); errno != 0 {
			t.Fatalf("ioctl %#x: %v", request, errno)
		}
	})
}
