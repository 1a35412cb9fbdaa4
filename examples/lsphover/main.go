// Command lsphover lets gopls add the import of "os" to a Go file, in memory, and prints the file
// and the hover information for a line and a column: go run ./examples/lsphover main.go 5 6
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/swansong-go/swansong/lspconn"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, "gopls", os.Args[1:]...); err != nil {
		fmt.Fprintln(os.Stderr, "lsphover:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, gopls string, args ...string) error {
	doc, at, err := open(args)
	if err != nil {
		return err
	}
	conn, err := lspconn.Start(ctx, lspconn.Server{
		Command: []string{gopls}, Dir: doc.dir, Initialize: doc.initialize(),
		OnNotify: func(_ context.Context, method string, params json.RawMessage) {
			if method == "$/progress" {
				fmt.Fprintf(out, "progress %s\n", params)
			}
		},
		OnRequest: func(_ context.Context, method string, params json.RawMessage) (any, error) {
			if method == "workspace/applyEdit" { // handlers run one after the other, so doc needs no lock
				return object{"applied": true}, doc.apply(params)
			}
			return nil, nil // client/registerCapability and window/workDoneProgress/create want no result
		},
	})
	if err != nil {
		return err
	}
	lspconn.Notify(ctx, conn, "textDocument/didOpen", object{"textDocument": doc})
	hover, err := lspconn.Call[*hover](ctx, conn, "textDocument/hover", object{"textDocument": doc, "position": at})
	if err == nil {
		addImport := object{"command": "gopls.add_import", "arguments": []object{{"URI": doc.URI, "ImportPath": "os"}}}
		_, err = lspconn.Call[any](ctx, conn, "workspace/executeCommand", addImport)
	}
	if _, closeErr := conn.Close(context.WithoutCancel(ctx)); err != nil || closeErr != nil {
		return errors.Join(err, closeErr)
	}
	fmt.Fprintf(out, "%v\n%s", hover, doc.Text) // after Close, no handler uses out or doc
	return nil
}
