package main

import (
	"context"
	"errors"
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
	web.Go(func(context.Context) { served <- serve(web, ln, sv.handler(), linger) })
	mails.Go(func(context.Context) { sv.sendMails(mails) }) // mails, not its Work: told to stop, it empties the queue
	disk.Go(func(context.Context) { sv.flushOrders(disk) })

	select {
	case <-ctx.Done():
		stop()
	case <-web.Done(): // the listener has failed: still, drain what was accepted
	}

	err := errors.Join(end(web), end(mails), end(disk))
	return errors.Join(err, <-served)
}

const (
	limit = 5 * time.Second // for a stage to drain
	grace = time.Second     // and to end, once its work is cut short
)

// end stops a stage and waits for it. Each stage has a limit of its own: with one for all of them, a request that hangs
// would leave no time for the queue and the buffer. And on a context of its own: one that the stop ends would not wait.
func end(stage *ctxshutdown.Swansong) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := stage.Shutdown().Wait(ctx)
	if err == nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(context.Background(), grace)
	defer cancel()
	stage.Force(err).Wait(ctx) // whoever ignores that too is abandoned, for the sake of the next stage
	return err                 // it names who was in the way
}
