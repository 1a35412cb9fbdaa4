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

// programVar names an environment variable that makes the test binary run the program.
const programVar = "MAINTHREAD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVar) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// The window is opened and closed on the main thread of the process.
func TestProgram_OpensAndClosesWindowOnMainThread(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-for", "50ms")
	cmd.Env = append(os.Environ(), programVar+"=1")
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

// If a callback panics, the program closes the window on the thread that has opened it.
func TestRun_ClosesWindowOnItsThreadAfterPanicOfCallback(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out := &panickingWriter{text: "title:"}
	err := run(t.Context(), time.Hour, out)
	if err == nil || !strings.Contains(err.Error(), "write failed") {
		t.Errorf("run returned %v, want the panic", err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 || !strings.Contains(out.String(), "closed on "+thread()) {
		t.Errorf("the window was not closed:\n%s", out)
	}
}

// A panickingWriter panics when it is given something that contains text.
type panickingWriter struct {
	bytes.Buffer
	text string
}

func (w *panickingWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.text)) {
		panic("write failed")
	}
	return w.Buffer.Write(p)
}

// The end of the context, as after a ^C, closes the window long before the time is over.
func TestRun_ReturnsAfterInterrupt(t *testing.T) {
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
