package statefile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A state file that is a named pipe is refused, even while a program writes to it: without such a
// program, a launcher would wait for one without a limit.
func TestRead_RefusesNamedPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "state.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(pipe, []byte("half a fi"), 0o600) }()
	_, err := statefile.Read(pipe)
	// Give the pipe a reader, so that the goroutine that writes ends.
	if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
		defer f.Close()
	}
	<-wrote
	e, ok := err.(*statefile.Error)
	if !ok {
		t.Fatalf("error %v, want a statefile.Error", err)
	}
	testkit.Equal(t, "cause", e.Cause.Error(), "open "+pipe+": it is no regular file")
	testkit.Equal(t, "damaged", e.Damaged, false)
}
