//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/load"
)

// Twenty rolls under constant load lose no request, with a router and with an inherited listener,
// with persistent connections and with one connection per request. Each second roll supersedes the
// one before, which has only begun, has started a process, or has a replacement that is ready.
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
	for n := range rolls {
		if n%2 == 0 {
			h.drainEvents()
			if err := h.Restart(canceled(), "web", "to be superseded"); !errors.Is(err, context.Canceled) {
				t.Errorf("the roll to be superseded: %v", err)
			}
			if reached := []launcher.State{0, launcher.Spawning, launcher.Ready}[n/2%3]; reached != 0 {
				h.readUntil("a replacement is "+reached.String(), func(e launcher.Event) bool { return e.To == reached })
			}
			continue
		}
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
	if h.Stats().Groups["web"].Rolls["superseded"] == 0 {
		t.Error("no roll was superseded")
	}
	if t.Failed() {
		t.Log(h.story())
	}
	t.Logf("%d rolls, %d requests, the longest of which took %v", rolls, sent, longest)
}
