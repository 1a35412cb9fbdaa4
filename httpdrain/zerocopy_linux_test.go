package httpdrain_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// The kernel copies a large file from disk to socket, and a hijacked connection from socket to
// socket, without copying the bytes through the process. The same is true with net/http alone.
func TestServe_KernelCopiesFilesAsWithNetHTTP(t *testing.T) {
	const size = 16 << 20
	const copied = size / (32 << 10)
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
		calls <- testkit.ReadWriteCalls(t, func() { http.ServeFile(w, r, name) })
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
		calls <- testkit.ReadWriteCalls(t, func() {
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
		if n := <-calls; n > copied/2 {
			t.Errorf("%s: %d reads and writes, so the bytes were copied through the process", path, n)
		}
	}
	v.s.Shutdown()
	v.drained()
}
