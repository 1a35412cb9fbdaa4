// Package waitctx has calls of Wait that return at once.
package waitctx

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func theScope(s *ctxshutdown.Swansong) error {
	return s.Shutdown().Wait(s) // want `the context given to Wait ends when s is stopped, so Wait returns at once; use another context, such as context.WithTimeout\(context.Background\(\), 10\*time.Second\)`
}

func derived(s *ctxshutdown.Swansong) error {
	ctx, cancel := context.WithTimeout(s, time.Second)
	defer cancel()
	done := s.ShutdownCause(errors.New("the end"))
	s.Force(nil).Wait(ctx)  // want `ends when s is stopped`
	return done.Wait((ctx)) // want `ends when s is stopped`
}

func onTheWay(s *ctxshutdown.Swansong) error {
	go func() {
		s.Completion().Wait(s) // want `ends when s is stopped`
	}()
	return nil
}

func theChild(s *ctxshutdown.Swansong) error {
	child, cancel := ctxshutdown.WithCancel(s)
	defer cancel()
	return s.Shutdown().Wait(child) // want `ends when s is stopped`
}

type app struct{ scope *ctxshutdown.Swansong }

func (a *app) stop() error {
	return a.scope.Shutdown().Wait(a.scope) // want `ends when a.scope is stopped`
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s := ctxshutdown.New(ctx)
	<-ctx.Done()
	return s.Shutdown().Wait(ctx) // want `the context given to Wait has ended, because ctx has ended at line 50, so Wait returns at once`
}

func runWithALimit(ctx context.Context, failed chan error) error {
	s := ctxshutdown.New(ctx)
	select {
	case err := <-failed:
		return errors.Join(err, s.Shutdown().Wait(ctx))
	case <-ctx.Done():
		limit, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := s.Shutdown().Wait(limit); err != nil { // want `the context given to Wait has ended, because ctx has ended at line 59`
			return err
		}
	}
	return nil
}

func anotherScope(s *ctxshutdown.Swansong) {
	child, cancel := ctxshutdown.WithCancel(s.Work())
	defer cancel()
	<-s.Done()
	child.Shutdown().Wait(s) // want `the context given to Wait has ended, because s has ended at line 72`
}

type embedding struct{ *ctxshutdown.Swansong }

func (e *embedding) stop() error {
	if err := e.Shutdown().Wait(e.Swansong); err != nil { // want `ends when e.Swansong is stopped`
		return err
	}
	return e.Swansong.Shutdown().Wait(e) // want `ends when e.Swansong is stopped`
}

func ofARequest(r *http.Request, s *ctxshutdown.Swansong) error {
	<-r.Context().Done()
	return s.Shutdown().Wait(r.Context()) // want `has ended, because r.Context\(\) has ended at line`
}
