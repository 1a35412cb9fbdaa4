// Command webservice shows what a deploy costs. It starts a small web shop three times, puts it under load from a
// process of its own, sends it a real SIGTERM in the middle, and counts what was lost: with a service that does nothing
// about the signal, with http.Server.Shutdown alone, and with swansong. Nothing leaves the loopback interface.
//
//	go run ./examples/webservice [-open]
//
// With -open the shop stays open after that, for a look at its page and until somebody presses ^C.
//
// To copy from: stop_swansong.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/graceful"
)

// The program plays all parts. It starts itself with one of these in the environment.
const (
	roleVar = "WEBSERVICE_ROLE"
	dirVar  = "WEBSERVICE_DIR"  // where a server keeps its files
	addrVar = "WEBSERVICE_ADDR" // whom to put under load
	calmVar = "WEBSERVICE_CALM" // a few customers, who wait for reports too
)

// ways are the three ways of stopping, in the order of the table.
var ways = []struct {
	name, says string
	serve      func(net.Listener, *service) error
}{
	{"exit on signal", "does nothing about SIGTERM", serveUntilKilled},
	{"Shutdown alone", "calls http.Server.Shutdown and returns", serveUntilShutdown},
	{"swansong", "drains the server, then the mails, then the disk", serveUntilDrained},
}

const (
	openRole  = "open"
	visitRole = "visit" // for tests: only what -open adds
)

const warmUp = 1500 * time.Millisecond // of load, before the signal

func main() {
	stay := flag.Bool("open", false, "in the end, keep the shop open until somebody presses ^C")
	flag.Parse()
	err := run(os.Getenv(roleVar), *stay)
	if err != nil {
		fmt.Fprintln(os.Stderr, "webservice:", err)
	}
	os.Exit(graceful.ExitCode(err))
}

func run(role string, stay bool) error {
	switch role {
	case "":
		if err := compare(); err != nil || !stay {
			return err
		}
		return open()
	case "load":
		return generateLoad(os.Getenv(addrVar))
	case openRole:
		return serveRole(serveOpen)
	case visitRole:
		return open()
	}
	for _, way := range ways {
		if way.name == role {
			return serveRole(way.serve)
		}
	}
	return fmt.Errorf("%s=%q is for the program's own use; run it without", roleVar, role)
}

// serveRole is a server process.
func serveRole(serve func(net.Listener, *service) error) error {
	sv, err := openService(os.Getenv(dirVar))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	return serve(ln, sv)
}

// compare runs the three services one after another and prints the table.
func compare() error {
	if runtime.GOOS == "windows" {
		return errors.New("this demo sends SIGTERM, which Windows does not have; run it on Linux or macOS")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("A web shop is deployed three times under load: %d clients that order, %d that stream.\n", orderClients, streamClients)
	var results []result
	for _, way := range ways {
		fmt.Printf("\n%s: a service that %s\n", way.name, way.says)
		r, err := deploy(ctx, way.name)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		results = append(results, r)
		fmt.Printf("  %d requests lost, %d acknowledged orders not on disk\n", r.Lost, len(r.Orders)-r.OnDisk)
	}
	fmt.Printf("\n%s\nLost: bytes of the request were sent on an established connection, and no complete response came back.\n", table(results))
	if r := results[len(results)-1]; r.Lost > 0 || r.OnDisk < len(r.Orders) || r.JobsLost > 0 {
		return errors.New("swansong has lost something: that is a bug, please report it with the table")
	}
	return nil
}

// deploy runs one service under load and stops it in the middle.
func deploy(ctx context.Context, way string) (r result, err error) {
	dir, err := os.MkdirTemp("", "webservice")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	s, err := start(ctx, way, dir)
	if err != nil {
		return r, err
	}
	defer s.kill() // where something goes wrong below; else it has ended by itself
	fmt.Printf("  serving on %s, under load for %v\n", s.addr, warmUp)
	select {
	case <-time.After(warmUp):
	case <-ctx.Done():
		return r, errors.New("interrupted")
	}

	fmt.Println("  SIGTERM …")
	began := time.Now()
	if err := s.terminate(); err != nil {
		return r, err
	}
	err = <-s.ended
	r.Way, r.Drain = way, time.Since(began)
	bySignal := s.server.ProcessState.Sys().(syscall.WaitStatus).Signaled()
	if dies := way == ways[0].name; err != nil && !(dies && bySignal) { // only the first may die of the signal
		return r, fmt.Errorf("the server failed: %w", err)
	}
	fmt.Printf("  the server is gone after %v\n", r.Drain.Round(time.Millisecond))
	if err := <-s.seen; err != nil {
		return r, fmt.Errorf("the load generator failed: %w", err)
	}
	r.tally = s.tally
	return r, r.compareWith(dir)
}
