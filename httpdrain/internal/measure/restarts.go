package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

// serveEnv is an environment variable. In a process that restartUnderLoad has started, it has the
// address at which the process serves.
const serveEnv = "MEASURE_SERVE"

// serveUntilSignal serves at addr until the process gets a signal, with httpdrain.Run, as a program
// would. It returns the exit code.
func serveUntilSignal(addr string) int {
	return graceful.ExitCode(httpdrain.Run(context.Background(), addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "ok")
	})))
}

// restartProcess restarts a process under load, in two ways: with a listening socket that outlives
// the process, as that of a .socket unit of systemd does, and with a listener that each process
// opens itself.
func restartProcess(w io.Writer, restarts int) error {
	fmt.Fprintf(w, "\n## Restarts of a process\n\nA process that calls `httpdrain.Run` is ended by SIGTERM and started again, %d times, while %d keep-alive clients send\n"+
		"POST requests. It either inherits the listening socket, as from a `.socket` unit of systemd, or listens itself. Refused\n"+
		"are attempts to connect, which the clients repeat after 10 ms. Exit codes are those of all processes.\n\n", restarts, clients)
	fmt.Fprint(w, "| listener | requests | lost | refused | exit codes |\n| --- | ---: | ---: | ---: | --- |\n")
	for _, listener := range []string{"inherited", "of the process"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		var files []*os.File
		if listener == "inherited" {
			f, err := ln.(*net.TCPListener).File()
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		ln.Close() // the socket stays open, because f is a second descriptor of it
		t, codes, err := restartUnderLoad(ln.Addr().String(), files, restarts)
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			return err
		}
		var ends []string
		for _, code := range slices.Sorted(maps.Keys(codes)) {
			ends = append(ends, fmt.Sprintf("%d × %d", codes[code], code))
		}
		fmt.Fprintf(w, "| %s | %d | %d | %d | %s |\n", listener, t.started.Load(), t.lost.Load(), t.refused.Load(), strings.Join(ends, ", "))
	}
	return nil
}

// restartUnderLoad restarts the server at addr while clients send requests. It returns the outcomes
// of these requests, and how many processes ended with each exit code.
func restartUnderLoad(addr string, files []*os.File, restarts int) (t *tally, codes map[int]int, err error) {
	t, codes = new(tally), map[int]int{}
	var ended atomic.Bool
	var wg sync.WaitGroup
	for i := range restarts + 1 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), serveEnv+"="+addr, fmt.Sprint("LISTEN_FDS=", len(files)))
		cmd.ExtraFiles, cmd.Stderr = files, os.Stderr
		if err := cmd.Start(); err != nil {
			return t, codes, err
		}
		if i == 0 {
			for range clients {
				wg.Go(func() { patientClient(addr, t, &ended) })
			}
		}
		for target := t.started.Load() + 1000; t.started.Load() < target; {
			time.Sleep(time.Millisecond)
		}
		if i == restarts {
			ended.Store(true)
			wg.Wait()
		}
		codes[end(cmd)]++
	}
	return t, codes, nil
}

// end sends SIGTERM to a process, waits for it, and returns its exit code.
func end(cmd *exec.Cmd) int {
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// patientClient sends requests until ended is true. If its attempt to connect fails, it tries
// again.
func patientClient(addr string, t *tally, ended *atomic.Bool) {
	for !ended.Load() {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.refused.Add(1)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		in := bufio.NewReader(conn)
		for keep := true; keep && !ended.Load(); {
			keep = exchange(conn, in, t)
		}
		conn.Close()
	}
}
