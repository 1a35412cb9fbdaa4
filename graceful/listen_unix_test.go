//go:build unix

package graceful_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
)

const listenVar = "SWANSONG_TEST_LISTEN"

func init() {
	roles["listens"] = func() error {
		network, address, _ := strings.Cut(os.Getenv(listenVar), " ")
		ln, err := graceful.Listen(network, address)
		if err != nil {
			return err
		}
		defer ln.Close()
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "LISTEN_FDS=%q", os.Getenv("LISTEN_FDS"))
		return err
	}
	roles["listens, is ready"] = func() error {
		network, address, _ := strings.Cut(os.Getenv(listenVar), " ")
		var opts []graceful.Option
		if os.Getenv("LOG") != "" {
			opts = append(opts, graceful.WithLogger(slog.Default()))
		}
		return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
			ln, err := graceful.Listen(network, address)
			if err != nil {
				return err
			}
			graceful.Ready(s)
			return ln.Close()
		}, opts...)
	}
}

// listenInChild runs a process that inherits ln, calls Listen, and serves one client. It returns
// the output of the process.
func listenInChild(t *testing.T, ln interface{ File() (*os.File, error) }, address string, env ...string) string {
	t.Helper()
	f, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), roleVar+"=listens", listenVar+"="+address, "GORACE=atexit_sleep_ms=0"), env...)
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

// A client that connects while no process runs is served by the next process.
func TestListen_NoClientIsRefusedDuringRestart(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				// The path of t.TempDir would be too long for a socket.
				dir, err := os.MkdirTemp("", "")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				address = filepath.Join(dir, "socket")
			}
			ln, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			for range 2 {
				conn, err := net.Dial(network, ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				out := listenInChild(t, ln.(interface{ File() (*os.File, error) }), network+" "+ln.Addr().String(), "LISTEN_FDS=1")
				if out != "" {
					t.Fatal(out)
				}
				got, err := io.ReadAll(conn)
				conn.Close()
				if err != nil {
					t.Fatal(err)
				}
				testkit.Equal(t, "answer", string(got), `LISTEN_FDS=""`)
			}
		})
	}
}

// If the port of the program is not that of the inherited listener, the program listens on its own
// port, and clients of the inherited listener would wait without a notice.
func TestReady_WarnsOfUnusedListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	used, other := ln.Addr().String(), "127.0.0.1:0"
	for _, test := range []struct {
		name, address, log, want string
	}{
		{"used", used, "", ""},
		{"unused", other, "", "graceful: the inherited listener " + used + " is not used, so its clients wait for ever; pass its address to Listen\n"},
		{"unused, with a logger", other, "LOG=1", `so its clients wait for ever; pass its address to Listen addr=` + used},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := listenInChild(t, ln.(*net.TCPListener), "tcp "+test.address, "LISTEN_FDS=1", roleVar+"=listens, is ready", test.log)
			if !strings.Contains(out, test.want) || test.want == "" && out != "" {
				t.Errorf("the process prints %q, want %q", out, test.want)
			}
		})
	}
}

func TestListen_ReportsInvalidListenersInEnvironment(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, test := range []struct {
		name string
		env  []string
		want string
	}{
		{"for another process", []string{"LISTEN_FDS=1", "LISTEN_PID=1"}, "address already in use"},
		{"no number", []string{"LISTEN_FDS=x"}, `graceful: LISTEN_FDS="x" must be a number from 0 to 1024`},
		{"no listener", []string{"LISTEN_FDS=2"}, "graceful: file descriptor 4, one of 2 in LISTEN_FDS, is not a listener: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := listenInChild(t, ln.(*net.TCPListener), "tcp "+ln.Addr().String(), test.env...)
			if !strings.Contains(out, test.want) {
				t.Errorf("the process says %q, want %q", out, test.want)
			}
		})
	}
}
