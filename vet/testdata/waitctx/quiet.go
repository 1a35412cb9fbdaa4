package waitctx

import (
	"context"
	"net/http"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func ofItsOwn(ctx context.Context, s *ctxshutdown.Swansong) error {
	<-s.Done()
	limit, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Shutdown().Wait(limit)
	s.Shutdown().Wait(ctx)
	s.Shutdown().Wait(context.WithoutCancel(s))
	s.Shutdown().Wait(s.Work())
	done := s.Completion()
	return done.Wait(limit)
}

// The stop of a scope does not end the context that the scope derives from, so Wait may use it.
func ofTheCaller(ctx context.Context) error {
	s := ctxshutdown.New(ctx)
	return s.Shutdown().Wait(ctx)
}

// The stop of a child does not end its parent.
func theParent(s *ctxshutdown.Swansong) error {
	child, cancel := ctxshutdown.WithCancel(s)
	defer cancel()
	return child.Shutdown().Wait(s)
}

func anotherByThen(ctx context.Context, s *ctxshutdown.Swansong) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.Shutdown().Wait(ctx)
}

func onAnotherPath(ctx context.Context, s *ctxshutdown.Swansong, patient bool) error {
	if patient {
		<-ctx.Done()
	}
	go func() { <-ctx.Done() }()
	return s.Shutdown().Wait(ctx)
}

func whichever(s, t *ctxshutdown.Swansong, first bool) error {
	done := s.Shutdown()
	if first {
		done = t.Shutdown()
	}
	return done.Wait(s)
}

func another(s *ctxshutdown.Swansong, wg interface{ Wait(context.Context) }) {
	wg.Wait(s)
}

func onTheSpot(ctx context.Context) error { return ctxshutdown.New(ctx).Shutdown().Wait(ctx) }

func ofAnotherRequest(r *http.Request, ctx context.Context, s *ctxshutdown.Swansong) error {
	<-r.Context().Done()
	r = r.WithContext(ctx)
	return s.Shutdown().Wait(r.Context())
}
