package lspconn_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// IdleTimeout runs from the call, not from the start of the server, and begins again at each
// message of the server.
func TestIdleTimeout_FailsSilentServerWithWaitingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := startInProcess(t, context.Background(), lspconn.Server{IdleTimeout: 10 * time.Second}, behaviours{})
		conn.Ready(t.Context())
		time.Sleep(25 * time.Second)
		testkit.Equal(t, "error without a call", conn.Err(), nil)
		begin := time.Now()
		time.AfterFunc(6*time.Second, func() { conn.Call(context.Background(), "echo", nil) })
		_, err := conn.Call(t.Context(), "never", nil)
		contains(t, err, "a call is waiting, but the server has sent no message for 10s")
		testkit.Equal(t, "time", time.Since(begin), 16*time.Second)
		testkit.Equal(t, "state", conn.State(), lspconn.Failed)
		conn.Close(t.Context())
	})
}

// IdleTimeout does not run while OnRequest is working on a request of the server.
func TestIdleTimeout_DoesNotRunDuringHandler(t *testing.T) {
	for _, async := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			conn, _ := startInProcess(t, context.Background(), lspconn.Server{
				IdleTimeout: 10 * time.Second,
				OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
					if async {
						lspconn.Async(ctx)
					}
					time.Sleep(time.Minute)
					return "late", nil
				},
			}, behaviours{})
			result, err := conn.Call(t.Context(), "ask", nil)
			testkit.Equal(t, "result", string(result), `"late"`)
			testkit.Equal(t, "error", err, nil)
			conn.Close(t.Context())
		})
	}
}

// The handler for a request of the server returns just before a time-out, and the next message of
// the server comes after it. The time-out begins anew when the handler returns, so the connection
// must not fail.
func TestIdleTimeout_BeginsAnewAfterHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := startSlow(t, lspconn.Server{ // the server takes 100 ms to read a message
			IdleTimeout: 10 * time.Second,
			OnRequest: func(context.Context, string, json.RawMessage) (any, error) {
				time.Sleep(14850 * time.Millisecond)
				return "late", nil
			},
		})
		conn.Ready(t.Context())
		time.Sleep(5 * time.Second) // the handler ends 19.95 s after the connection was Ready
		result, err := conn.Call(t.Context(), "ask", nil)
		testkit.Equal(t, "result", string(result), `"late"`)
		testkit.Equal(t, "error", err, nil)
		conn.Close(t.Context())
	})
}

// A server may take longer than IdleTimeout to answer shutdown: Close waits for the answer until
// six tenths of the time to its deadline have passed.
func TestIdleTimeout_DoesNotLimitAnswerToShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := startInProcess(t, context.Background(), lspconn.Server{IdleTimeout: time.Second},
			behaviours{Shutdown: "never"})
		conn.Ready(t.Context())
		go conn.Call(context.Background(), "never", nil)
		synctest.Wait()
		begin := time.Now()
		r, err := conn.Close(context.Background())
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "state", conn.State(), lspconn.Closed)
		if d := time.Since(begin); d < 6*time.Second {
			t.Errorf("the server had %v of 10s for shutdown: %v", d, r)
		}
	})
}
