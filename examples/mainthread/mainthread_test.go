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
