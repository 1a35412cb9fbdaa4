package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// asProgram has the test binary be the program.
const asProgram = "MAINTHREAD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// As a user would run it.
func TestTheMainThread(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-for", "50ms")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "opened on the main thread\ntitle: hello\nclosed on the main thread\n"
	if runtime.GOOS != "linux" {
		want = strings.ReplaceAll(want, "the main", "some")
	}
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// A panic on the main thread ends it as well, and does not keep the window from being closed there.
func TestPanic(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out := &broken{at: "title:"}
	err := run(t.Context(), time.Hour, out)
	if err == nil || !strings.Contains(err.Error(), "the screen is gone") {
		t.Errorf("run: %v, want the panic", err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 || !strings.Contains(out.String(), "closed on "+thread()) {
		t.Errorf("the window was not closed:\n%s", out)
	}
}

// broken panics when something is written to it that contains at.
type broken struct {
	bytes.Buffer
	at string
}

func (b *broken) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(b.at)) {
		panic("the screen is gone")
	}
	return b.Buffer.Write(p)
}

// ^C ends it long before its time.
func TestInterrupt(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := run(ctx, time.Hour, &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 3 || !strings.Contains(out.String(), "closed on") {
		t.Errorf("the window was not closed:\n%s", &out)
	}
}
