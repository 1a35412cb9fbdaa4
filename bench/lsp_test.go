package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/lspconn"
)

// A client with lspconn and a server with sourcegraph/jsonrpc2 exchange concurrent requests in both
// directions.
func TestLspconn_ExchangesRequestsWithJSONRPC2Server(t *testing.T) {
	server := echo()
	server.Env = append(os.Environ(), asLanguageServer+"=jsonrpc2")
	server.OnRequest = func(_ context.Context, method string, params json.RawMessage) (any, error) {
		return []any{method, params}, nil
	}
	conn, err := lspconn.Start(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for j := range 20 {
				params := json.RawMessage(fmt.Sprintf(`{"n":[%d,%d],"s":"\u00e9\n"}`, i, j))
				method, want := "echo", string(params)
				if j%2 == 0 {
					method, want = "ask", fmt.Sprintf(`["client/ask",%s]`, params)
				}
				got, err := conn.Call(t.Context(), method, params)
				var g, w any
				json.Unmarshal(got, &g)
				json.Unmarshal([]byte(want), &w)
				if diff := cmp.Diff(w, g); err != nil || diff != "" {
					t.Errorf("%s: %v (-want +got):\n%s", method, err, diff)
				}
			}
		})
	}
	all.Wait()
	var refused *lspconn.ResponseError
	if _, err := conn.Call(t.Context(), "fail", nil); !errors.As(err, &refused) || refused.Code != -5 || refused.Message != "no luck" {
		t.Errorf("%v", err)
	}
	report, err := conn.Close(context.Background())
	if err != nil || report.Outcome != lspconn.Clean {
		t.Errorf("%v, %v", report, err)
	}
}
