package httpdrain_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Handlers return as soon as Force cancels the contexts of their requests, except for one. On
// HTTP/2 their responses may be lost, because the connection is closed at the same time. So the
// CutError lists all of the requests.
func TestForce_ListsHTTP2RequestsWhoseHandlersReturnAtForce(t *testing.T) {
	const requests = 20
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			ln := listenInMemory()
			leave := make(chan struct{})
			v := startOn(t, ln, plain2(func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				if r.URL.Path == "/slow" {
					<-leave // as long as this handler runs, the server does not report that all requests are answered
				}
			}))
			p := ln.dial(t)
			p.send(preface + frame(4, 0, "") + request2(1, "/slow"))
			for i := 1; i < requests; i++ {
				p.send(request2(byte(2*i+1), "/"))
			}
			p.next(4)
			p.next(4)
			synctest.Wait()
			v.s.Force(errTooLate)
			var cut *httpdrain.CutError
			if err := <-v.done; !errors.As(err, &cut) {
				t.Fatalf("Serve returned %v, want a CutError", err)
			}
			testkit.Equal(t, "requests listed", len(cut.Cut), requests)
			close(leave)
		})
	}
}
