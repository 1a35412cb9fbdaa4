package http3drain_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Clients that share a connection, and clients that have one each, send requests that cannot be
// repeated. Every request is answered, except for the last one of each client: it fails because the
// client has closed the connection after a GOAWAY, or cannot connect again.
func TestServe_LosesNoRequestUnderLoad(t *testing.T) {
	srv := newServer(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		ok(w, r)
	})
	for range 5 {
		inBubble(t, srv, func(v *service) {
			var mu sync.Mutex
			answered, refused := 0, 0
			var clients sync.WaitGroup
			for _, streams := range []int{30, 1, 1, 1, 1, 1} {
				c := v.client()
				for range streams {
					clients.Go(func() {
						for {
							resp, err := c.Post(url, "text/plain", struct{ io.Reader }{strings.NewReader("body")})
							if err == nil {
								_, err = io.ReadAll(resp.Body)
								resp.Body.Close()
							}
							mu.Lock()
							if err == nil {
								answered++
								mu.Unlock()
								time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
								continue
							}
							refused++
							mu.Unlock()
							// A client that receives a GOAWAY just when it begins a request may
							// close the connection itself; see the documentation of the package.
							var dial *dialError
							var closed *http3.Error
							if !errors.As(err, &dial) && !(errors.As(err, &closed) && closed.ErrorCode == http3.ErrCodeNoError && !closed.Remote) {
								t.Errorf("a request failed with %v, want that its client cannot connect", err)
							}
							return
						}
					})
				}
			}
			time.Sleep(time.Second)
			v.s.Shutdown()
			clients.Wait()
			testkit.Equal(t, "Serve returned", <-v.done, nil)
			testkit.Equal(t, "requests refused", refused, 35)
			if answered < 100 {
				t.Errorf("only %d requests were answered", answered)
			}
		})
	}
}
