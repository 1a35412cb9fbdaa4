package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/graceful"
	"go.uber.org/goleak"
)

// TestMain runs the program instead of the tests if the process was started with a role.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := run(role, false); err != nil {
			fmt.Fprintln(os.Stderr, "webservice:", err)
			os.Exit(graceful.ExitCode(err))
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// A reaction is what a scripted server writes in response to one request.
type reaction string

const (
	drop     reaction = "" // close the connection without a response
	accepted reaction = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n7\n"
	busy     reaction = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
	last     reaction = "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 2\r\n\r\n8\n"
	short    reaction = "HTTP/1.1 201 Created\r\nContent-Length: 20\r\n\r\n9\n"
	chunk    reaction = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
	noEnd    reaction = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
	whole    reaction = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
	noHead   reaction = "HTTP/1.1 200 OK\r\nContent-Len"
	garbage  reaction = "SSH-2.0-OpenSSH\r\n"
)

// startScripted starts a server that answers the requests of each connection with the given
// reactions, and then closes the connection. It closes its listener before it serves the last
// connection.
func startScripted(t *testing.T, connections ...[]reaction) (addr string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { ln.Close(); <-done })
	go func() {
		defer close(done)
		for i, reactions := range connections {
			conn, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			if i == len(connections)-1 {
				ln.Close()
			}
			in := bufio.NewReader(conn)
			for _, r := range reactions {
				req, err := http.ReadRequest(in)
				if err != nil {
					t.Error(err)
					break
				}
				io.Copy(io.Discard, req.Body)
				io.WriteString(conn, string(r))
			}
			conn.Close()
		}
	}()
	return ln.Addr().String()
}

// A server loses responses in various ways. The client must count every loss; otherwise the table
// that the program prints would be wrong.
func TestClient_CountsRequestsWithoutResponse(t *testing.T) {
	for _, test := range []struct {
		name   string
		server [][]reaction
		want   tally
	}{
		{"no loss", [][]reaction{{accepted, whole, last}},
			tally{Started: 3, Answered: 3, Orders: []int{7, 8}}},
		{"no response", [][]reaction{{accepted, drop}, {last}},
			tally{Started: 3, Answered: 2, Lost: 1, Orders: []int{7, 8}}},
		{"truncated body", [][]reaction{{short}}, tally{Started: 1, Lost: 1}},
		{"truncated chunked body", [][]reaction{{chunk}}, tally{Started: 1, Lost: 1}},
		{"chunked body without its last line", [][]reaction{{noEnd}}, tally{Started: 1, Lost: 1}},
		{"truncated header", [][]reaction{{noHead}}, tally{Started: 1, Lost: 1}},
		{"not HTTP", [][]reaction{{garbage}}, tally{Started: 1, Lost: 1}},
		{"503 is a response and is also counted separately", [][]reaction{{busy, last}},
			tally{Started: 2, Answered: 2, Unavailable: 1, Orders: []int{8}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := client{addr: startScripted(t, test.server...), request: orderRequest(1)}
			c.run()
			test.want.Refused = maxRefusals // the client ends after maxRefusals refused connections
			if diff := cmp.Diff(test.want, c.tally); diff != "" {
				t.Errorf("tally (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTable_HasColumnForEachResult(t *testing.T) {
	c := client{addr: startScripted(t, []reaction{accepted, drop}, []reaction{busy, last}), request: orderRequest(1)}
	c.run()
	results := []result{
		{Way: "complete", tally: tally{Started: 10, Answered: 10, Refused: 3, Orders: []int{1, 2}}, OnDisk: 2, Drain: 20 * time.Millisecond},
		{Way: "dropped", tally: c.tally, OnDisk: 1, JobsLost: 1, Drain: 1234567 * time.Microsecond},
	}
	want := `
                         complete   dropped
      requests started         10         4
              answered         10         3
                  LOST          0         1
   connections refused          3         3
                   503          0         1
   orders acknowledged          2         2
      of these on disk          2         1
             jobs lost          0         1
            drain time      20 ms   1234 ms
`[1:]
	if diff := cmp.Diff(want, table(results)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// An order whose line is incomplete in the file is not on disk.
func TestResult_CountsAcknowledgedOrdersMissingFromFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(ordersFile, "1 \"feather\"\n2 \"feather\"\n4 \"fea")
	write(mailsFile, "2\n")
	r := result{tally: tally{Orders: []int{1, 2, 3, 4}}}
	if err := r.checkFiles(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{2, 3}, []int{r.OnDisk, r.JobsLost}); diff != "" {
		t.Errorf("on disk, jobs lost (-want +got):\n%s", diff)
	}
}

// This test uses real processes and a real signal.
func TestDeploy_ServerWithSwansongLosesNoOrder(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // SIGTERM cannot be sent on Windows
	}
	r, err := deploy(context.Background(), "swansong")
	if err != nil {
		t.Fatal(err)
	}
	if r.Lost != 0 || r.OnDisk != len(r.Orders) || r.JobsLost != 0 {
		t.Errorf("a request, an order or a job was lost:\n%s", table([]result{r}))
	}
	if len(r.Orders) == 0 || r.Refused == 0 {
		t.Errorf("the signal did not arrive under load:\n%s", table([]result{r}))
	}
}

func TestRun_RejectsUnknownRole(t *testing.T) {
	want := `WEBSERVICE_ROLE="nonsense" is not a role; the program sets this variable itself, unset it`
	if err := run("nonsense", false); err == nil || err.Error() != want {
		t.Errorf("run: %v, want %s", err, want)
	}
}
