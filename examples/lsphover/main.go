// Command lsphover lets gopls import "os" in a Go file, in memory, and prints the new text and what
// gopls says about a line and a column, on Unix: go run ./examples/lsphover main.go 5 6
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/lspconn"
)

type (
	object   map[string]any
	hover    struct{ Contents struct{ Value string } }
	document struct{ uri, text string }
	position struct{ Line, Character uint } // counted from 0; Character is a byte of the line
	edit     struct {
		Range   struct{ Start, End position }
		NewText string
	}
	change struct {
		TextDocument struct{ URI string }
		Edits        []edit
	}
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
	if len(args) != 3 {
		return errors.New("usage: lsphover file.go line column")
	}
	path, err1 := filepath.Abs(args[0])
	text, err2 := os.ReadFile(path)
	line, err3 := strconv.Atoi(args[1])
	column, err4 := strconv.Atoi(args[2])
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	doc := &document{(&url.URL{Scheme: "file", Path: path}).String(), string(text)}
	conn, err := lspconn.Start(ctx, lspconn.Server{
		Command: []string{gopls},
		Initialize: json.RawMessage(`{"capabilities": {"general": {"positionEncodings": ["utf-8"]},
			"window": {"workDoneProgress": true}, "workspace": {"didChangeWatchedFiles": {"dynamicRegistration": true},
			"applyEdit": true, "workspaceEdit": {"documentChanges": true}}}}`),
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
	item := object{"uri": doc.uri, "languageId": "go", "version": 1, "text": doc.text}
	lspconn.Notify(ctx, conn, "textDocument/didOpen", object{"textDocument": item})
	at := object{"line": line - 1, "character": column - 1}
	said, hoverErr := lspconn.Call[hover](ctx, conn, "textDocument/hover", object{"textDocument": item, "position": at})
	addImport := object{"command": "gopls.add_import", "arguments": []object{{"URI": doc.uri, "ImportPath": "os"}}}
	_, editErr := lspconn.Call[any](ctx, conn, "workspace/executeCommand", addImport)
	_, closeErr := conn.Close(context.WithoutCancel(ctx)) // when Close has returned, no handler uses out or doc
	fmt.Fprintf(out, "%s\n%s", said.Contents.Value, doc.text)
	return errors.Join(hoverErr, editErr, closeErr)
}

// apply makes the edits of a workspace/applyEdit request, if they are edits of the document.
func (d *document) apply(params json.RawMessage) error {
	var request struct{ Edit map[string][]change }
	if err := json.Unmarshal(params, &request); err != nil {
		return err
	}
	for _, change := range request.Edit["documentChanges"] {
		if change.TextDocument.URI != d.uri {
			return fmt.Errorf("%s is not open", change.TextDocument.URI)
		}
		for _, e := range slices.Backward(change.Edits) { // from the last edit to the first: an edit moves the text after it
			d.text = d.text[:e.Range.Start.in(d.text)] + e.NewText + d.text[e.Range.End.in(d.text):]
		}
	}
	return nil
}

// in returns the offset of the position in a text, or the end of the text if the position is behind
// it.
func (p position) in(text string) uint {
	lines := strings.SplitAfter(text, "\n")
	before := strings.Join(lines[:min(p.Line, uint(len(lines)))], "")
	return uint(len(before)) + min(p.Character, uint(len(text)-len(before)))
}
