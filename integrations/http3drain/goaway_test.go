package http3drain_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/internal/testkit"
)

func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// The first GOAWAY has the largest possible id. Requests that the client sends before it has read
// that GOAWAY are served. Then the second GOAWAY names the last stream.
func TestServe_SendsTwoGoAways(t *testing.T) {
	inBubble(t, newServer(ok), func(v *service) {
		p := v.peer()
		p.readResponse(p.send("/"), "ok")
		v.s.Shutdown()
		time.Sleep(delay - time.Millisecond)
		late := p.send("/") // this request crosses the first GOAWAY on the network
		testkit.Equal(t, "first GOAWAY", <-p.goAway, uint64(1<<62-4))
		p.readResponse(late, "ok")
		testkit.Equal(t, "second GOAWAY", <-p.goAway, uint64(8))
		_, err := io.ReadAll(p.send("/"))
		var refused *quic.StreamError
		if !errors.As(err, &refused) || refused.ErrorCode != quic.StreamErrorCode(http3.ErrCodeRequestRejected) {
			t.Errorf("a request after the second GOAWAY gets %v, want H3_REQUEST_REJECTED", err)
		}
		p.awaitClose()
		testkit.Equal(t, "Serve returned", <-v.done, nil)
	})
}

// If packets to a client take long, the server sends the second GOAWAY only when the client has had
// time to read the first one.
func TestServe_WaitsUntilSlowNetworkDeliversGoAway(t *testing.T) {
	inBubble(t, newServer(ok), func(v *service) {
		v.far = 900 * time.Millisecond
		p := v.peer()
		p.readResponse(p.send("/"), "ok")
		v.s.Shutdown()
		time.Sleep(delay + v.far - time.Millisecond)
		p.readResponse(p.send("/"), "ok")
		testkit.Equal(t, "first GOAWAY", <-p.goAway, uint64(1<<62-4))
		testkit.Equal(t, "second GOAWAY", <-p.goAway, uint64(8))
		p.awaitClose()
	})
}
