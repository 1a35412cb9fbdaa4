//go:build unix

package main

import (
	"net"
	"os"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// A process with an inherited listener is restarted under load. No client is refused or loses a
// request, and every process exits with code 0.
func TestRestart_WithInheritedListenerRefusesNoClient(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const restarts = 2
	got, codes, err := restartUnderLoad(ln.Addr().String(), []*os.File{f}, restarts)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "refused", got.refused.Load(), int64(0))
	testkit.Equal(t, "exit codes", codes, map[int]int{0: restarts + 1})
	if n := got.lost.Load(); n > 0 {
		t.Errorf("%d of %d requests lost", n, got.started.Load())
	}
}
