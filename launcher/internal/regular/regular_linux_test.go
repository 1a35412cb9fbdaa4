package regular_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/regular"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tooLong is the time after which a waiting test fails.
const tooLong = time.Minute

// A pipe is refused at once, although no program writes to it, also if it has taken the place of a
// regular file after Open has looked at it.
func TestOpen_RefusesPipeWithoutWaitingForWriter(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func(name, advice string) (*os.File, error){
		"Open":              regular.Open,
		"open after a look": regular.OpenChanged,
	} {
		refused := make(chan string, 1)
		go func() {
			f, err := open(pipe, "; name another")
			if err != nil {
				refused <- err.Error()
				return
			}
			f.Close()
			refused <- "opened"
		}()
		select {
		case err := <-refused:
			testkit.Equal(t, what, err, "open "+pipe+": it is no regular file; name another")
		case <-time.After(tooLong):
			t.Errorf("%s waits for a program that writes to the pipe", what)
			if w, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil { // a writer ends the wait
				defer w.Close()
			}
			<-refused
		}
	}
}

// Open looks at a file before it opens it. Otherwise a program that waits for a reader of the pipe
// would take Open for that reader, and what it writes would be lost.
func TestOpen_DoesNotOpenPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(opened)
	if _, err := syscall.InotifyAddWatch(opened, pipe, syscall.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	if f, err := regular.Open(pipe, ""); err == nil {
		f.Close()
	}
	if _, err := syscall.Read(opened, make([]byte, 1024)); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("the pipe was opened (%v)", err)
	}
}

// Regular files, the null device and directories are opened, also by a symbolic link.
func TestOpen_OpensFilesThatNeverWait(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{file: "text", link: "text", os.DevNull: ""} {
		f, err := regular.Open(name, "")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(f)
		f.Close()
		testkit.Equal(t, "error of reading "+name, err, nil)
		testkit.Equal(t, "text in "+name, string(text), want)
	}
	f, err := regular.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
