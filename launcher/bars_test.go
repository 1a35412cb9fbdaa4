//go:build unix

package launcher_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/load"
)

// Twenty rolls under constant load lose no request, with a router and with an inherited listener,
// with persistent connections and with one connection per request.
func TestRoll_LosesNoRequestUnderLoad(t *testing.T) {
	const rolls = 20
	t.Run("router", func(t *testing.T) {
		t.Parallel()
		r := &table{}
		g := runners("web", 2, "--http", "{socket}", "--initial-work", "0")
		rollUnderLoad(t, launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: r}).ready(), rolls, r.dial)
	})
	t.Run("listener", func(t *testing.T) {
		t.Parallel()
		g := runners("web", 2, "--initial-work", "0")
		g.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
		h := launch(t, g).ready()
		addr := h.Addrs("web")[0].String()
		rollUnderLoad(t, h, rolls, func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		})
	})
}

func rollUnderLoad(t *testing.T, h *harness, rolls int, dial func(ctx context.Context) (net.Conn, error)) {
	t.Helper()
	var l load.Ledger
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() { l.Ask(ctx, &load.Client{Dial: dial, KeepAlive: n%2 == 0}, nil) })
	}
	for range rolls {
		late, cancel := context.WithTimeout(context.Background(), 2*tooLong)
		if err := h.Restart(late, "web", "test"); err != nil {
			t.Errorf("%v\n%s", err, h.story())
		}
		cancel()
	}
	stop()
	clients.Wait()
	for _, err := range l.Failures() {
		t.Error(err)
	}
	sent, longest := l.Sent()
	if sent == 0 {
		t.Error("no request was sent")
	}
	if t.Failed() {
		t.Log(h.story())
	}
	t.Logf("%d rolls, %d requests, the longest of which took %v", rolls, sent, longest)
}
