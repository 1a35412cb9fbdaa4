package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// serveUntilDrained stops the stages one after another, each when nobody is left who could give it work: first the
// server, then the mails, then the disk.
//
//	main ─┬─ http    stop accepting, answer what arrives, close what is quiet
//	      ├─ mails   confirm what is in the queue
//	      └─ disk    write what is in the buffer
func serveUntilDrained(ln net.Listener, sv *service) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop() // from here on, a second signal ends the program the hard way

	main := ctxshutdown.New(context.Background())
	defer main.Shutdown()
	web, _ := ctxshutdown.WithCancel(main, ctxshutdown.WithName("http"))
	mails, _ := ctxshutdown.WithCancel(main, ctxshutdown.WithName("mails"))
	disk, _ := ctxshutdown.WithCancel(main, ctxshutdown.WithName("disk"))

	served := make(chan error, 1)
	web.Go(func(context.Context) { served <- serve(web, ln, sv.handler()) })
	mails.Go(func(context.Context) { sv.sendMails(mails) }) // mails, not its Work: told to stop, it empties the queue
	disk.Go(func(context.Context) { sv.flushOrders(disk) })

	select {
	case <-ctx.Done():
		stop()
	case err := <-served:
		served <- err // the listener has failed: still, drain what was accepted
	}

	// One limit for all stages, on a context that the stop does not end.
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, stage := range []*ctxshutdown.Swansong{web, mails, disk} {
		if err := stage.Shutdown().Wait(limit); err != nil {
			fmt.Fprintln(os.Stderr, "webservice:", err) // names who is in the way
			stage.Force(err)
		}
	}
	return <-served
}
