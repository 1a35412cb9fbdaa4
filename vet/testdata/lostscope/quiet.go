package lostscope

import (
	"context"
	"os"
	"os/signal"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

func deferred(ctx context.Context) error {
	s := ctxshutdown.New(ctx)
	defer s.Shutdown()
	child, cancel := ctxshutdown.WithCancel(s)
	defer cancel()
	return run(child)
}

func onAllPaths(ctx context.Context) error {
	s := ctxshutdown.New(ctx)
	if err := run(s); err != nil {
		s.ShutdownCause(err)
		return err
	}
	return s.Force(nil).Wait(context.Background())
}

func elsewhere(ctx context.Context) {
	s := ctxshutdown.New(ctx)
	go func() {
		run(s)
		s.Shutdown()
	}()
	t := ctxshutdown.New(ctx)
	context.AfterFunc(ctx, func() { t.Shutdown() })
}

type server struct {
	scope *ctxshutdown.Swansong
	ctx   context.Context
}

func handedOver(ctx context.Context) (*ctxshutdown.Swansong, *server) {
	a, b, c, d := ctxshutdown.New(ctx), ctxshutdown.New(ctx), ctxshutdown.New(ctx), ctxshutdown.New(ctx)
	serve(a)
	srv := &server{scope: b}
	srv.ctx = c
	runAll(d)
	srv.scope, _ = ctxshutdown.WithCancel(ctx)
	serve(ctxshutdown.New(ctx))
	return ctxshutdown.New(ctx), srv
}

func returned(ctx context.Context) (s *ctxshutdown.Swansong, cancel context.CancelFunc) {
	s, cancel = ctxshutdown.WithCancel(ctx)
	return
}

func waitedFor(ctx context.Context) error {
	s := ctxshutdown.New(ctx)
	go run(s)
	return s.Completion().Wait(context.Background())
}

func cancelIsUsed(ctx context.Context) error {
	s, cancel := ctxshutdown.WithCancel(ctx)
	_ = cancel
	return run(s)
}

func waitedForItsStop(ctx context.Context) error {
	s := ctxshutdown.New(ctx)
	go run(s)
	<-s.Done()
	return nil
}

func asleep(ctx context.Context) {
	s := ctxshutdown.New(ctx)
	for ctxshutdown.Sleep(s, time.Second) {
		work()
	}
	t := ctxshutdown.New(ctx)
	for t.Err() == nil {
		work()
	}
	u := ctxshutdown.New(ctx)
	for {
		if u.Err() != nil {
			return
		}
	}
}

func endsWithItsContext(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	s := ctxshutdown.New(context.WithValue(ctx, server{}, 1))
	for range []string{"a", "b"} {
		child, _ := ctxshutdown.WithCancel(s)
		child.Go(func(context.Context) {})
	}
	return run(s)
}

func ofARun() error {
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		jobs, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName("jobs"))
		jobs.Go(func(context.Context) {})
		<-s.Done()
		return nil
	})
}

var root = ctxshutdown.New(context.Background())

func theirs(ctx context.Context) {
	root = ctxshutdown.New(ctx)
}

func perhaps(ctx context.Context, wanted bool) {
	var s *ctxshutdown.Swansong
	if wanted {
		s = ctxshutdown.New(ctx)
	}
	if wanted {
		s.Shutdown()
	}
}

func main() {}
