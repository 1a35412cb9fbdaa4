package lspconn_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

type position struct {
	Line int `json:"line"`
}

// The result of the method echo is its params, so it shows how they were encoded.
func TestCallTyped_EncodesParamsAndDecodesResult(t *testing.T) {
	c := start(t, fake(role{}))
	ctx := t.Context()
	got, err := lspconn.Call[position](ctx, c, "echo", position{Line: 3})
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "result", got, position{Line: 3})
	raw, err := lspconn.Call[json.RawMessage](ctx, c, "echo", position{Line: 3})
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "encoded params", string(raw), `{"line":3}`)
	null, err := lspconn.Call[*position](ctx, c, "echo", json.RawMessage("null"))
	testkit.Equal(t, "error of a null result", err, nil)
	if null != nil {
		t.Errorf("null result: %v, want nil", null)
	}
}

func TestCallTyped_ReturnsErrors(t *testing.T) {
	c := start(t, fake(role{}))
	ctx := t.Context()
	var wrongType *json.UnmarshalTypeError
	if got, err := lspconn.Call[position](ctx, c, "echo", []int{1}); !errors.As(err, &wrongType) || got != (position{}) {
		t.Errorf("a result of another type: %v, %v", got, err)
	}
	// In the result, the member "line" can be decoded, but the member "column" cannot.
	type pair struct{ Line, Column int }
	if got, err := lspconn.Call[pair](ctx, c, "echo", json.RawMessage(`{"line":3,"column":"x"}`)); err == nil || got != (pair{}) {
		t.Errorf("a result that is wrong in part: %v, %v; want an error and no result", got, err)
	}
	var unsupported *json.UnsupportedTypeError
	if _, err := lspconn.Call[position](ctx, c, "echo", make(chan int)); !errors.As(err, &unsupported) {
		t.Errorf("params that are no JSON: %v", err)
	}
	if err := lspconn.Notify(ctx, c, "note", make(chan int)); !errors.As(err, &unsupported) {
		t.Errorf("params of a notification that are no JSON: %v", err)
	}
	testkit.Equal(t, "state after wrong types", c.State(), lspconn.Ready)
	c.Close(ctx)
	if _, err := lspconn.Call[position](ctx, c, "echo", nil); !errors.Is(err, lspconn.ErrClosing) {
		t.Errorf("after Close: %v", err)
	}
	if err := lspconn.Notify(ctx, c, "note", position{}); !errors.Is(err, lspconn.ErrClosing) {
		t.Errorf("notification after Close: %v", err)
	}
}
