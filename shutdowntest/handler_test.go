package shutdowntest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/shutdowntest"
)

// An orders is an HTTP handler that stores an order and then ships it, which takes a while.
type orders struct {
	s       *ctxshutdown.Swansong
	stored  atomic.Int32
	shipped atomic.Int32
}

func (o *orders) handle(w http.ResponseWriter, r *http.Request) {
	g, ok := ctxshutdown.Acquire(r.Context())
	if !ok {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	defer g.Release()
	if err := o.store(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	ctxshutdown.Go(r.Context(), func(context.Context) { o.ship() })
	w.WriteHeader(http.StatusAccepted)
}

// store takes the place of a database transaction, which is cancelled when its context ends.
func (o *orders) store(ctx context.Context) error {
	if !ctxshutdown.Sleep(ctx, time.Millisecond) {
		return context.Cause(ctx)
	}
	o.stored.Add(1)
	return nil
}

func (o *orders) ship() {
	time.Sleep(20 * time.Millisecond)
	o.shipped.Add(1)
}

func TestHandler_StoresAndShipsEveryAcceptedOrder(t *testing.T) {
	shutdowntest.Run(t, handlerScenario((*orders).handle))
}

func handlerScenario(handle func(o *orders, w http.ResponseWriter, r *http.Request)) scenario {
	return func(t *testing.T, s *ctxshutdown.Swansong) func() {
		o := &orders{s: s}
		base := s.BaseContext(nil)
		var clients sync.WaitGroup
		for i := range 3 {
			clients.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Microsecond) // different times, so that no two operations are simultaneous
				for range 2 {
					w := httptest.NewRecorder()
					handle(o, w, httptest.NewRequestWithContext(base, "POST", "/orders", nil))
					if w.Code != http.StatusAccepted && w.Code != http.StatusServiceUnavailable {
						t.Errorf("an order got %d: %s", w.Code, w.Body)
					}
				}
			})
		}
		clients.Wait()
		return func() {
			if stored, shipped := o.stored.Load(), o.shipped.Load(); stored != shipped {
				t.Errorf("%d of %d orders are shipped", shipped, stored)
			}
		}
	}
}

func handleThatStoresOnTheSoftTier(o *orders, w http.ResponseWriter, r *http.Request) {
	o.handle(w, r.WithContext(o.s))
}

func handleThatShipsWithoutAGuard(o *orders, w http.ResponseWriter, r *http.Request) {
	g, ok := ctxshutdown.Acquire(r.Context())
	if !ok {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	defer g.Release()
	if err := o.store(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	go o.ship()
	w.WriteHeader(http.StatusAccepted)
}
