package lspconn_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// The params of initialize contain the pid of this program, unless the caller has set processId.
func TestInitialize_ParamsContainProcessID(t *testing.T) {
	pid := fmt.Sprint(os.Getpid())
	for given, want := range map[string]string{
		"":                         `{"processId":` + pid + `,"rootUri":null,"capabilities":{}}`,
		"{}":                       `{"processId":` + pid + `}`,
		` {"a":{"processId":1}}`:   `{"processId":` + pid + `,"a":{"processId":1}}`,
		`{"processId":null}`:       `{"processId":null}`,
		`{"a":1,"processId":4711}`: `{"a":1,"processId":4711}`,
		`["by position"]`:          `["by position"]`,
	} {
		synctest.Test(t, func(t *testing.T) {
			var server lspconn.Server
			if given != "" {
				server.Initialize = json.RawMessage(given)
			}
			conn, g := startInProcess(t, t.Context(), server, behaviours{})
			conn.Ready(t.Context())
			mustClose(t, conn)
			testkit.Equal(t, "params of initialize for "+given, string(g.Received()[0].Params), want)
		})
	}
}
