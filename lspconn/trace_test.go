package lspconn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// Trace contains every message in the order in which it was sent or received.
// docs/internals/lspconn.md#trace
func TestTrace_ContainsEveryMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trace bytes.Buffer
		server := lspconn.Server{
			Initialize: json.RawMessage(`{"processId":null}`),
			Trace: writer(func(b []byte) (int, error) {
				trace.Write(b)
				return 0, errors.New("ignored")
			}),
			OnRequest: func(context.Context, string, json.RawMessage) (any, error) {
				time.Sleep(7 * time.Millisecond)
				return nil, &lspconn.ResponseError{Code: 5, Message: "two\nlines"}
			},
		}
		conn, _ := startInProcess(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		conn.Notify(t.Context(), "note", json.RawMessage(`{"text":"a\n\n\nb"}`))
		conn.Call(t.Context(), "ask", nil)
		conn.Call(t.Context(), "send", json.RawMessage(`[{"jsonrpc":"2.0","method":"hello"},{"jsonrpc":"2.0","id":99,"result":1}]`))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn.Call(ctx, "never", nil)
		mustClose(t, conn)

		// The LSP Inspector requires this form of a message: two lines, JSON, two empty lines.
		entry := regexp.MustCompile(`^\[Trace - \d\d:\d\d:\d\d\.\d{3}\] (.*)\n(Params|Result): `)
		var got []string
		for _, text := range strings.SplitAfter(trace.String(), "\n\n\n") {
			if text == "" {
				continue
			}
			head := entry.FindStringSubmatch(text)
			if head == nil {
				t.Errorf("%q does not have the form of a message", text)
				continue
			}
			var compact bytes.Buffer
			if err := json.Compact(&compact, []byte(entry.ReplaceAllString(text, ""))); err != nil {
				t.Errorf("%q: %v", text, err)
			}
			got = append(got, head[1]+" "+compact.String())
		}
		testkit.Equal(t, "trace", got, []string{
			`Sending request 'initialize - (1)'. {"processId":null}`,
			`Received response 'initialize - (1)' in 0ms. {"capabilities":{}}`,
			`Sending notification 'initialized'. {}`,
			`Sending notification 'note'. {"text":"a\n\n\nb"}`,
			`Sending request 'ask - (2)'. null`,
			`Received request 'client/ask - (q1)'. {"for":2}`,
			`Sending response 'client/ask - (q1)'. Processing request took 7ms. Request failed. {"code":5,"message":"two\nlines"}`,
			`Received response 'ask - (2)' in 7ms. {"error":{"code":5,"message":"two\nlines"}}`,
			`Sending request 'send - (3)'. [{"jsonrpc":"2.0","method":"hello"},{"jsonrpc":"2.0","id":99,"result":1}]`,
			`Received notification 'hello'. null`,
			`Received response 'unknown - (99)' in 0ms. 1`,
			`Received response 'send - (3)' in 0ms. null`,
			`Sending request 'never - (4)'. null`,
			`Sending notification '$/cancelRequest'. {"id":4}`,
			`Sending request 'shutdown - (5)'. null`,
			`Received response 'shutdown - (5)' in 0ms. null`,
			`Sending notification 'exit'. null`,
		})
	})
}
