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

	"github.com/swansong-go/swansong/lspconn"
)

// A server that asks and asks, and reads no answer, costs no goroutine for each, and is done with where it overdoes it.
func TestOnRequest_Flood(t *testing.T) {
	flooded := func(t *testing.T, n int, then func(t *testing.T, conn *lspconn.Conn, release chan struct{}, answer chan error)) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			server := lspconn.Server{OnRequest: func(context.Context, string, json.RawMessage) (any, error) {
				<-release
				return nil, nil
			}}
			conn, g := slow(t, server) // in no time, next to nothing is written
			conn.Ready(t.Context())
			time.Sleep(time.Second)
			before := runtime.NumGoroutine()
			answer := make(chan error, 1)
			go func() {
				_, err := conn.Call(context.Background(), "flood", fmt.Append(nil, n))
				answer <- err
			}()
			time.Sleep(150 * time.Millisecond) // it has been written, and one answer is being written
			synctest.Wait()
			if more := runtime.NumGoroutine() - before; more > 300 {
				t.Errorf("%d requests have made %d goroutines", n, more)
			}
			then(t, conn, release, answer)
			closed(t, conn)
			time.Sleep(time.Second) // for who was writing
			equal(t, "guards", 0, conn.Scope().GuardCount())
			equal(t, "faults", []string(nil), g.Faults())
		})
	}
	t.Run("refused", func(t *testing.T) {
		flooded(t, 5000, func(t *testing.T, conn *lspconn.Conn, release chan struct{}, answer chan error) {
			equal(t, "answer", error(nil), <-answer)
			close(release)
			call(t, conn, "echo", "[1]")
			time.Sleep(time.Hour)
			equal(t, "guards", "1 guard: slow/process ×1", conn.Scope().GuardReport().String())
		})
	})
	t.Run("too many", func(t *testing.T) {
		flooded(t, 10_000, func(t *testing.T, conn *lspconn.Conn, release chan struct{}, answer chan error) {
			err := <-answer
			var broken *lspconn.ProtocolError
			if !errors.As(err, &broken) || !errors.Is(err, lspconn.ErrClosing) {
				t.Errorf("%v", err)
			}
			contains(t, err, "more than 256 requests at once", "8192 refusals that it does not read")
			close(release)
		})
	})
}

// What has to be kept of a request to answer it is bounded too.
func TestReadFrames_ID(t *testing.T) {
	for _, test := range []struct{ id, says string }{
		{`"` + strings.Repeat("x", 1<<10) + `"`, "an id of 1026 bytes, more than the 1024"},
		{`{"a":1}`, `an id that is neither text nor a number: "{\"a\":1}"`},
		{`[1]`, "an id that is neither"},
		{`true`, "an id that is neither"},
	} {
		err := lspconn.Decode([]byte(`{"jsonrpc":"2.0","method":"m","id":` + test.id + `}`))
		var broken *lspconn.ProtocolError
		if !errors.As(err, &broken) {
			t.Errorf("%.20s: %v", test.id, err)
			continue
		}
		contains(t, err, test.says)
	}
	for _, id := range []string{"1", "-1", `""`, `"a"`, "null", `"` + strings.Repeat("x", 1022) + `"`} {
		if err := lspconn.Decode([]byte(`{"jsonrpc":"2.0","method":"m","id":` + id + `}`)); err != nil {
			t.Errorf("%.20s: %v", id, err)
		}
	}
}
