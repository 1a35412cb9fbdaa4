package lspconn

import (
	"context"
	"encoding/json"
	"fmt"
)

// Call does what [Conn.Call] does, with params and a result of Go types: it encodes params as JSON
// and decodes the result into a Result:
//
//	hover, err := lspconn.Call[*Hover](ctx, conn, "textDocument/hover", HoverParams{...})
//
// A result of null is the zero value of a pointer, slice or map. Nil params are omitted from the
// message. Besides the errors of Conn.Call, which it returns unchanged, Call returns an error that
// wraps an error of package encoding/json. This happens if params cannot be encoded, in which case
// nothing is sent, and if the result cannot be decoded into a Result.
func Call[Result any](ctx context.Context, c *Conn, method string, params any) (Result, error) {
	var none, result Result
	encoded, err := encodeParams(c, method, params)
	if err != nil {
		return none, err
	}
	answer, err := c.Call(ctx, method, encoded)
	if err != nil {
		return none, err
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		return none, fmt.Errorf("lspconn: %s: the result of %s cannot be decoded: %w", label(c.server.key, c.server.Name), method, err)
	}
	return result, nil
}

// Notify does what [Conn.Notify] does, with params of a Go type, which it encodes as JSON. If
// params cannot be encoded, it sends nothing and returns an error that wraps the error of package
// encoding/json.
func Notify(ctx context.Context, c *Conn, method string, params any) error {
	encoded, err := encodeParams(c, method, params)
	if err != nil {
		return err
	}
	return c.Notify(ctx, method, encoded)
}

// encodeParams returns params as JSON, or nothing for nil params.
func encodeParams(c *Conn, method string, params any) (json.RawMessage, error) {
	if params == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("lspconn: %s: the params of %s cannot be encoded: %w", label(c.server.key, c.server.Name), method, err)
	}
	return encoded, nil
}
