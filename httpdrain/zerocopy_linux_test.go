package httpdrain_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A large file goes from the disk to the socket, and hijacked bytes from socket to socket, without passing through the
// program, as they do without us.
func TestServe_ZeroCopy(t *testing.T) {
	const size = 16 << 20
	const byHand = size / (32 << 10)
	name := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(name, make([]byte, size), 0o666); err != nil {
		t.Fatal(err)
	}
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	go func() {
		for {
			c, err := backend.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				go io.CopyN(c, zeros{}, size)
				io.Copy(io.Discard, c)
			}()
		}
	}()

	calls := make(chan int, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		calls <- callsOf(t, func() { http.ServeFile(w, r, name) })
	})
	mux.HandleFunc("/tunnel/{way}", func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		other, err := net.Dial("tcp", backend.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer other.Close()
		calls <- callsOf(t, func() {
			if r.PathValue("way") == "in" {
				io.CopyN(conn, other, size)
			} else {
				io.Copy(other, conn)
			}
		})
	})
	v := start(t, &http.Server{Handler: mux})
	for _, path := range []string{"/file", "/tunnel/in", "/tunnel/out"} {
		p := dial(t, v.addr)
		p.send("GET " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
		go func() {
			if path == "/tunnel/out" {
				io.CopyN(p, zeros{}, size)
				p.Close()
			} else {
				io.Copy(io.Discard, p)
			}
		}()
		if n := <-calls; n > byHand/2 {
			t.Errorf("%s: %d reads and writes, so the bytes went through the program", path, n)
		}
	}
	v.s.Shutdown()
	v.drained()
}

// callsOf returns how many reads and writes f takes, by the kernel's count for the thread that runs it. A splice is not
// counted, a sendfile as one of each.
func callsOf(t *testing.T, f func()) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calls := func() (n int) {
		text, err := os.ReadFile("/proc/thread-self/io")
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			var name string
			var value int
			if _, err := fmt.Sscanf(line, "%s %d", &name, &value); err == nil && (name == "syscr:" || name == "syscw:") {
				n += value
			}
		}
		return n
	}
	before := calls()
	f()
	return calls() - before
}
