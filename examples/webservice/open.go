package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/swansong-go/swansong/graceful"
)

// serveOpen is serveUntilDrained with phases that are long enough to be watched: it accepts
// requests for two seconds after the signal, and then gives slow reports time to finish.
func serveOpen(ln net.Listener, sv *service) error {
	return serveGracefully(ln, sv, true, graceful.WithLameDuck(2*time.Second), graceful.WithSoft(10*time.Second))
}

// open runs the shop under a light load until ^C is pressed, and prints what was lost. A ^C sends
// SIGINT to all processes of the terminal. The server drains. This process and the load generator
// ignore the signal and wait for the end of the server.
func open() error {
	// A child process inherits which signals are ignored, and graceful.Run leaves them ignored. So
	// this process must not ignore ^C before it has started the server, and catches it until then.
	// Afterwards the function start ignores ^C and starts the load generator, which is to ignore ^C
	// as well.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	defer signal.Reset(os.Interrupt)
	dir, err := os.MkdirTemp("", "webservice")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	fmt.Println("\nThe shop is open. A few clients send orders, read streams, and wait for reports that take 4 seconds.")
	d, err := start(context.Background(), openServerRole, dir)
	if err != nil {
		return err
	}
	defer d.kill()
	fmt.Println("Press ^C to close it, and again to skip to the next phase of the stop.")
	exit := <-d.serverDone
	if err := <-d.loadDone; err != nil {
		return fmt.Errorf("the load generator failed: %w", err)
	}
	r := result{Way: "open", tally: d.tally}
	if err := r.checkFiles(dir); err != nil {
		return err
	}
	fmt.Printf("  lost requests: %d of %d, acknowledged orders not on disk: %d\n", r.Lost, r.Started, len(r.Orders)-r.OnDisk)
	if exit != nil {
		return fmt.Errorf("the drain was cut short, or the server failed: %w", exit)
	}
	if r.Lost > 0 || r.OnDisk < len(r.Orders) {
		return errors.New("swansong lost a request or an order: this is a bug, please report it with the output above")
	}
	return nil
}
