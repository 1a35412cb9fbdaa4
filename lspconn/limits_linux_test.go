package lspconn_test

import (
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// Params that are too long to be sent are refused by all methods that send, and the connection goes
// on. The memory of the params is reserved but never used: their length alone decides.
// docs/internals/lspconn.md#limits
func TestConn_RefusesParamsBeyondLimit(t *testing.T) {
	const limit = 256<<20 - 1<<10
	params, err := syscall.Mmap(-1, 0, limit+1, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(params)
	synctest.Test(t, func(t *testing.T) {
		conn, _ := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{})
		_, err := conn.Call(t.Context(), "ask", params)
		tooLong := &lspconn.ResponseError{Code: lspconn.CodeInvalidParams, Message: "lspconn: params of ask have 268434433 bytes; the limit is 268434432"}
		testkit.Equal(t, "error of Call", err, error(tooLong))
		testkit.Equal(t, "error of Notify", conn.Notify(t.Context(), "ask", params), error(tooLong))
		testkit.Equal(t, "error of NotifyLatest", conn.NotifyLatest("key", "ask", params).Wait(t.Context()), error(tooLong))

		if _, err := conn.Call(t.Context(), "ask", params[:limit]); err == nil || !strings.Contains(err.Error(), "not valid JSON") {
			t.Errorf("params as long as the limit, which contain only zeros: %v; want an error about JSON", err)
		}
		mustClose(t, conn)
	})
}
