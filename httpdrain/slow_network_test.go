package httpdrain_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Clients with a network delay of 50 ms send a request about every second. With a lame duck phase
// of three seconds, no client loses a request. Without that phase, few clients lose one: if all
// connections had the same linger of 100 ms, a tenth of the clients would.
func TestServe_LosesNoRequestOverSlowNetwork(t *testing.T) {
	for lameDuck, tolerated := range map[time.Duration]int32{0: 5, 3 * time.Second: 0} {
		t.Run(fmt.Sprint("lame duck ", lameDuck), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const delay, think, clients = 50 * time.Millisecond, time.Second, 200
				ln := listenInMemory()
				ln.Queue = make(chan net.Conn, clients)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() {
					done <- graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
						return httpdrain.Serve(s, handler(ok), ln)
					}, graceful.WithSignals(), graceful.WithLameDuck(lameDuck))
				}()
				var lost, answered atomic.Int32
				var wg sync.WaitGroup
				for i := range clients {
					random := rand.New(rand.NewPCG(1, uint64(i)))
					client, far := net.Pipe()
					testkit.ConnectSlowly(far, ln.dialFrom(t, fmt.Sprint("client ", i)), delay)
					wg.Go(func() {
						defer client.Close()
						in := bufio.NewReader(client)
						for keep := true; keep; {
							// Pause until the deadline. If the server closes the connection during
							// the pause, the client sends no further request on it.
							client.SetReadDeadline(time.Now().Add(think/2 + time.Duration(random.Int64N(int64(think)))))
							if _, err := in.Peek(1); err == io.EOF {
								return
							}
							client.SetReadDeadline(time.Time{})
							io.WriteString(client, get)
							resp, err := http.ReadResponse(in, nil)
							if err != nil {
								lost.Add(1)
								return
							}
							io.Copy(io.Discard, resp.Body)
							answered.Add(1)
							keep = !resp.Close
						}
					})
				}
				time.Sleep(5300 * time.Millisecond)
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				wg.Wait()
				time.Sleep(time.Second) // wait until the goroutines of the simulated network have ended
				if lost.Load() > tolerated {
					t.Errorf("%d of %d clients lost a request, and %d were answered", lost.Load(), clients, answered.Load())
				}
			})
		})
	}
}
