// Command webservice shows what is lost when a service is stopped under load. It starts a small web
// shop, sends requests to it from another process, stops it with SIGTERM, and counts the requests
// and orders that were lost. It does so three times: with a service that does not handle the
// signal, with http.Server.Shutdown alone, and with swansong. All connections use the loopback
// interface.
//
//	go run ./examples/webservice [-open]
//
// With -open it then starts the shop once more and keeps it open until ^C is pressed. The debug
// page of the shop shows how it drains.
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

// The program starts itself as the server and as the load generator. These environment variables
// tell a process what to do.
const (
	roleVar      = "WEBSERVICE_ROLE"
	dirVar       = "WEBSERVICE_DIR"        // folder for the files of a server
	addrVar      = "WEBSERVICE_ADDR"       // address that the load generator connects to
	lightLoadVar = "WEBSERVICE_LIGHT_LOAD" // if set, the load generator has only a few clients
)

// ways are the three ways to stop a service, in the order of the table that the program prints.
var ways = []struct {
	name, description string // selfCommand starts the server with its name as the role
	serve             func(net.Listener, *service) error
}{
	{"exit on signal", "does not handle SIGTERM", serveUntilKilled},
	{"Shutdown alone", "calls http.Server.Shutdown and returns", serveUntilShutdown},
	{"swansong", "finishes its requests, then sends its mails, then writes its buffer to disk", serveUntilDrained},
}

const (
	loadRole       = "load"        // makes the process the load generator
	openServerRole = "open-server" // makes the process the server that -open starts
	openOnlyRole   = "open-only"   // for tests: makes the program do only what the flag -open adds to a run
)

const warmUp = 1500 * time.Millisecond // how long the server is under load before the signal

func main() {
	keepOpen := flag.Bool("open", false, "after the comparison, start the shop again and keep it open until ^C is pressed")
	flag.Parse()
	err := run(os.Getenv(roleVar), *keepOpen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "webservice:", err)
	}
	os.Exit(graceful.ExitCode(err))
}

func run(role string, keepOpen bool) error {
	switch role {
	case "":
		if err := compare(); err != nil || !keepOpen {
			return err
		}
		return open()
	case loadRole:
		return generateLoad(os.Getenv(addrVar))
	case openServerRole:
		return serveRole(serveOpen)
	case openOnlyRole:
		return open()
	}
	for _, way := range ways {
		if way.name == role {
			return serveRole(way.serve)
		}
	}
	return fmt.Errorf("%s=%q is not a role; the program sets this variable itself, unset it", roleVar, role)
}

// serveRole runs a server process. It prints the address of the server as its first line.
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

const legend = `LOST: requests that were sent over an established connection and got no complete response.
jobs lost: acknowledged orders whose confirmation mail was not sent.
`

// compare stops a service in each of the three ways, one after another, and prints the table.
func compare() error {
	if runtime.GOOS == "windows" {
		return errors.New("this program sends SIGTERM, which does not exist on Windows; run it on Linux or macOS")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("A web shop is started and stopped three times while %d clients send orders and %d read streams.\n", orderClients, streamClients)
	var results []result
	for _, way := range ways {
		fmt.Printf("\n%s: a service that %s\n", way.name, way.description)
		r, err := deploy(ctx, way.name)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		results = append(results, r)
		fmt.Printf("  lost requests: %d, acknowledged orders not on disk: %d\n", r.Lost, len(r.Orders)-r.OnDisk)
	}
	fmt.Printf("\n%s\n%s", table(results), legend)
	if r := results[len(results)-1]; r.Lost > 0 || r.OnDisk < len(r.Orders) || r.JobsLost > 0 {
		return errors.New("swansong lost a request, an order or a job: this is a bug, please report it with the table")
	}
	return nil
}

// deploy starts a service, stops it in the given way while it is under load, and counts the losses.
func deploy(ctx context.Context, way string) (r result, err error) {
	dir, err := os.MkdirTemp("", "webservice")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	d, err := start(ctx, way, dir)
	if err != nil {
		return r, err
	}
	// If deploy returns early, kill ends the server and the load generator. Otherwise both have
	// exited by then.
	defer d.kill()
	fmt.Printf("  under load for %v\n", warmUp)
	select {
	case <-time.After(warmUp):
	case <-ctx.Done():
		return r, errors.New("interrupted")
	}

	fmt.Println("  sending SIGTERM")
	signalled := time.Now()
	if err := d.terminate(); err != nil {
		return r, err
	}
	err = <-d.serverDone
	r.Way, r.Drain = way, time.Since(signalled)
	bySignal := d.server.ProcessState.Sys().(syscall.WaitStatus).Signaled()
	// Only the server of ways[0] may be killed by the signal, because it does not handle the
	// signal. The others must exit by themselves.
	if mayDie := way == ways[0].name; err != nil && !(mayDie && bySignal) {
		return r, fmt.Errorf("the server failed: %w", err)
	}
	fmt.Printf("  the server has ended after %v\n", r.Drain.Round(time.Millisecond))
	if err := <-d.loadDone; err != nil {
		return r, fmt.Errorf("the load generator failed: %w", err)
	}
	r.tally = d.tally
	return r, r.checkFiles(dir)
}
