package lspconn_test

import (
	"errors"
	"testing"

	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
)

func TestClean(t *testing.T) {
	for _, code := range []int{0, 1} { // recorded, never required
		conn := ready(t, fake(role{Behaviour: fakelsp.Behaviour{Code: code, Stderr: "hello\n"}}))
		equal(t, "echo", `{"a":[1]}`, call(t, conn, "echo", `{"a":[1]}`))
		r := closed(t, conn)
		equal(t, "outcome", lspconn.Clean, r.Outcome)
		equal(t, "exit", &lspconn.Exit{Code: code}, r.Exit)
		equal(t, "stderr", "hello\n", r.Stderr)
		if _, err := conn.Call(t.Context(), "echo", nil); !errors.Is(err, lspconn.ErrClosing) {
			t.Errorf("a call after the end: %v", err)
		}
	}
}
