package secrets_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/secrets"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A file with secrets that is a named pipe is refused, even while a program writes to it: it is
// read again at the start of each process, and each read might wait without a limit.
func TestReadFiles_RefusesNamedPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(pipe, []byte("hush-hush"), 0o600) }()
	content, err := secrets.ReadFiles([]string{pipe})
	// Give the pipe a reader, so that the goroutine that writes ends.
	if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
		defer f.Close()
	}
	<-wrote
	testkit.Equal(t, "content", content, []string(nil))
	if err == nil {
		t.Fatal("a pipe was read")
	}
	testkit.Equal(t, "error", err.Error(), "the secret in "+pipe+" cannot be masked: it is no regular file; it is read again at the start of each process, so use a regular file")
}
