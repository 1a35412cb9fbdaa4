package http3drain_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Handlers return as soon as Force cancels the contexts of their requests. Their clients get no
// response, because the connections are closed at the same time, so Serve lists all of the
// requests.
func TestServe_ListsRequestsWhoseHandlersReturnAtForce(t *testing.T) {
	const requests = 20
	srv := newServer(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for range 5 {
		inBubble(t, srv, func(v *service) {
			peers := []*peer{v.peer(), v.peer()}
			for i := range requests {
				peers[i%2].send("/")
			}
			time.Sleep(time.Second)
			v.s.Force(nil)
			var cut *httpdrain.CutError
			if err := <-v.done; !errors.As(err, &cut) {
				t.Fatalf("Serve returned %v", err)
			}
			testkit.Equal(t, "requests listed", len(cut.Cut), requests)
		})
	}
}
