package lspconn_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// A message that belongs to no call does not end the connection. It is counted and logged, and
// pending calls get their own answers. docs/internals/lspconn.md#leniency
func TestConn_StaysOpenAfterMessageThatBelongsToNoCall(t *testing.T) {
	for _, test := range []struct{ name, message, log string }{
		{"an id that was never used", `{"jsonrpc":"2.0","id":99999,"result":2}`, "to a request that was never sent"},
		{"a negative id", `{"jsonrpc":"2.0","id":-1,"result":2}`, "to a request that was never sent"},
		{"id 0", `{"jsonrpc":"2.0","id":0,"result":2}`, "to a request that was never sent"},
		{"id null", `{"jsonrpc":"2.0","id":null,"result":2}`, "to a request that was never sent"},
		{"an error with id null", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot parse"}}`, `error="cannot parse (-32700)"`},
		{"no id", `{"jsonrpc":"2.0","result":2}`, "to a request that was never sent"},
		{"the id of a pending call as a string", `{"jsonrpc":"2.0","id":"2","result":2}`, "to a request that was never sent"},
		{"a fraction", `{"jsonrpc":"2.0","id":2.5,"result":2}`, "to a request that was never sent"},
		{"an id that is too large", `{"jsonrpc":"2.0","id":1e300,"result":2}`, "to a request that was never sent"},
		{"an id of another type", `{"jsonrpc":"2.0","id":{"a":1},"result":2}`, "to a request that was never sent"},
		{"an answered id", `{"jsonrpc":"2.0","id":1,"result":2}`, "its call has been answered or cancelled"},
		{"an answered id in another spelling", `{"jsonrpc":"2.0","id":1.0,"result":2}`, "its call has been answered or cancelled"},
		{"an empty object", `{}`, "to a request that was never sent"},
		{"a batch", `[{"jsonrpc":"2.0","id":2,"result":2}]`, `defect="the message is not an object"`},
		{"a string", `"hello"`, `defect="the message is not an object"`},
		{"a method that is not a string", `{"jsonrpc":"2.0","method":5}`, `defect="the method is not a string"`},
		{"a request whose id is an object", `{"jsonrpc":"2.0","method":"m","id":{}}`, `defect="the id is neither a string nor a number"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var text bytes.Buffer
				server := lspconn.Server{Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))}
				conn, _ := startInProcess(t, t.Context(), server, behaviours{})
				conn.Ready(t.Context())
				testkit.Equal(t, "answer of the call that was pending", call(t, conn, "send", "["+test.message+"]"), "null")
				testkit.Equal(t, "later call", call(t, conn, "echo", "[1]"), "[1]")
				testkit.Equal(t, "state", conn.State(), lspconn.Ready)
				r := mustClose(t, conn)
				testkit.Equal(t, "ignored messages", r.Stray, 1)
				testkit.Equal(t, "outcome", r.Outcome, lspconn.Clean)
				if !strings.Contains(text.String(), "lspconn: ignored") || !strings.Contains(text.String(), test.log) {
					t.Errorf("the log does not contain %s:\n%s", test.log, text.String())
				}
			})
		})
	}
}

// A server may write the id of a call in another way, and answer with an error that is not of the
// form of JSON-RPC. Such a response still completes its call.
func TestCall_AcceptsResponseWithUnusualIDOrError(t *testing.T) {
	for _, test := range []struct{ name, message, result, err string }{
		{"2.0", `{"jsonrpc":"2.0","id":2.0,"result":"yes"}`, `"yes"`, ""},
		{"2e0", `{"jsonrpc":"2.0","id":2e0,"result":"yes"}`, `"yes"`, ""},
		{"no jsonrpc", `{"id":2,"result":"yes"}`, `"yes"`, ""},
		{"method null", `{"jsonrpc":"2.0","id":2,"method":null,"result":"yes"}`, `"yes"`, ""},
		{"neither result nor error", `{"jsonrpc":"2.0","id":2}`, `null`, ""},
		{"an error that is a string", `{"jsonrpc":"2.0","id":2,"error":"broken"}`, "", `the server answered with an error that is not of the form of JSON-RPC: "\"broken\"" (-32603)`},
		{"a code that is a string", `{"jsonrpc":"2.0","id":2,"error":{"code":"E7","message":"m"}}`, "", `the server answered with an error that is not of the form`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, _ := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{})
				conn.Ready(t.Context())
				result, err := conn.Call(t.Context(), "send", json.RawMessage("["+test.message+"]"))
				testkit.Equal(t, "result", string(result), test.result)
				var refused *lspconn.ResponseError
				if test.err != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), test.err)) || test.err == "" && err != nil {
					t.Errorf("error %v, want %q", err, test.err)
				}
				call(t, conn, "echo", "[1]")
				testkit.Equal(t, "the second response is ignored", mustClose(t, conn).Stray, 1)
			})
		})
	}
}
