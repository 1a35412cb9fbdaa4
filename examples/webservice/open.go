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

// openFor is how long the shop stays open if nobody presses ^C.
const openFor = time.Minute

// serveOpen is serveUntilDrained on a ladder that a person can watch: there is time before the door closes, and reports that take
// a while are being made.
func serveOpen(ln net.Listener, sv *service) error {
	return serveGracefully(ln, sv, graceful.WithLameDuck(2*time.Second), graceful.WithSoft(10*time.Second))
}

// open runs the shop under load until somebody presses ^C. That reaches all processes of the terminal: the server drains, the
// clients go on, and whoever waits here waits for both.
func open() error {
	signal.Ignore(os.Interrupt) // which the clients inherit, and the server, too, until it is ready for it
	defer signal.Reset(os.Interrupt)
	dir, err := os.MkdirTemp("", "webservice")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	fmt.Println("\nThe shop is open, with a few customers who order, stream, and wait for reports that take seconds.")
	s, err := start(context.Background(), openRole, dir)
	if err != nil {
		return err
	}
	defer s.kill()
	fmt.Printf("Press ^C to close it, again to hurry it along; it closes by itself after %v.\n", openFor)
	var exit error
	select {
	case exit = <-s.ended:
	case <-time.After(openFor):
		if err := s.terminate(); err != nil {
			return err
		}
		exit = <-s.ended
	}
	if err := <-s.seen; err != nil {
		return fmt.Errorf("the load generator failed: %w", err)
	}
	r := result{Way: "open", tally: s.tally}
	if err := r.compareWith(dir); err != nil {
		return err
	}
	fmt.Printf("  %d requests lost of %d, %d acknowledged orders not on disk\n", r.Lost, r.Started, len(r.Orders)-r.OnDisk)
	if exit != nil {
		return fmt.Errorf("the server was hurried along, or failed: %w", exit)
	}
	if r.Lost > 0 || r.OnDisk < len(r.Orders) {
		return errors.New("swansong has lost something: that is a bug, please report it with what is printed above")
	}
	return nil
}
