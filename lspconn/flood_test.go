package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// If a server sends requests without reading the responses, the connection starts no goroutine for
// the requests beyond its limit, and fails when too many responses wait to be written.
func TestOnRequest_RejectsFloodOfRequests(t *testing.T) {
	flooded := func(t *testing.T, n int, then func(t *testing.T, conn *lspconn.Conn, release chan struct{}, answer chan error)) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			server := lspconn.Server{OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
				lspconn.Async(ctx)
				<-release
				return nil, nil
			}}
			conn, g := startSlow(t, server) // writes are so slow that almost nothing is written during the test
			conn.Ready(t.Context())
			time.Sleep(time.Second)
			before := runtime.NumGoroutine()
			answer := make(chan error, 1)
			go func() {
				_, err := conn.Call(context.Background(), "flood", fmt.Append(nil, n))
				answer <- err
			}()
			// in this time initialized is written, and the write of a response begins
			time.Sleep(150 * time.Millisecond)
			synctest.Wait()
			if more := runtime.NumGoroutine() - before; more > 300 {
				t.Errorf("%d requests have started %d goroutines", n, more)
			}
			then(t, conn, release, answer)
			mustClose(t, conn)
			time.Sleep(time.Second) // waits until the write in progress has ended
			testkit.Equal(t, "guards", conn.Scope().GuardCount(), 0)
			testkit.Equal(t, "faults", g.Faults(), []string(nil))
		})
	}
	t.Run("requests beyond the limit are refused", func(t *testing.T) {
		flooded(t, 5000, func(t *testing.T, conn *lspconn.Conn, release chan struct{}, answer chan error) {
			testkit.Equal(t, "answer", <-answer, error(nil))
			close(release)
			call(t, conn, "echo", "[1]")
			time.Sleep(time.Hour)
			testkit.Equal(t, "guards", conn.Scope().GuardReport().String(), "1 guard: slow/process ×1")
		})
	})
	t.Run("too many responses that the server does not read", func(t *testing.T) {
		flooded(t, 10_000, func(t *testing.T, conn *lspconn.Conn, release chan struct{}, answer chan error) {
			err := <-answer
			var broken *lspconn.ProtocolError
			if !errors.As(err, &broken) || !errors.Is(err, lspconn.ErrClosing) {
				t.Errorf("%v", err)
			}
			contains(t, err, "more than 8192 requests that are unanswered, or whose responses the server does not read")
			close(release)
		})
	})
}

// The id of a request is kept until the request has been answered, so its length is limited.
func TestFrameReader_LimitsIDLength(t *testing.T) {
	for _, test := range []struct{ id, says string }{
		{`"` + strings.Repeat("x", 1<<10) + `"`, "an id of 1026 bytes; the limit is 1024"},
	} {
		err := lspconn.Decode([]byte(`{"jsonrpc":"2.0","method":"m","id":` + test.id + `}`))
		var broken *lspconn.ProtocolError
		if !errors.As(err, &broken) {
			t.Errorf("%.20s: %v", test.id, err)
			continue
		}
		contains(t, err, test.says)
	}
	for _, id := range []string{"1", "-1", `""`, `"a"`, "null", `{"a":1}`, `"` + strings.Repeat("x", 1022) + `"`} {
		if err := lspconn.Decode([]byte(`{"jsonrpc":"2.0","method":"m","id":` + id + `}`)); err != nil {
			t.Errorf("%.20s: %v", id, err)
		}
	}
}
