// Command lsphover lets gopls add an import to a document, and prints the text and a hover in it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"

	"github.com/swansong-go/swansong/lspconn"
)

type object map[string]any
type change struct{ Edits []edit }
type edit struct {
	Range   struct{ Start, End struct{ Line, Character int } } // counted from 0, in bytes
	NewText string
}

func main() {
	ctx, text := context.Background(), "package main\n\nfunc main() { println(os.Args) }\n"
	conn, err := lspconn.Start(ctx, lspconn.Server{
		Command: []string{"gopls"}, Initialize: json.RawMessage(`{"capabilities": {"general": {"positionEncodings": ["utf-8"]}, "window": {"workDoneProgress": true},
			"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": true}, "applyEdit": true, "workspaceEdit": {"documentChanges": true}}}}`),
		OnNotify: func(_ context.Context, method string, params json.RawMessage) { fmt.Println(method, string(params)) }, // such as $/progress
		OnRequest: func(_ context.Context, method string, params json.RawMessage) (any, error) {
			if method != "workspace/applyEdit" {
				return nil, nil // client/registerCapability and window/workDoneProgress/create want no result
			}
			var request struct{ Edit map[string][]change }
			err := json.Unmarshal(params, &request)
			lines := strings.SplitAfter(text, "\n")
			offset := func(p struct{ Line, Character int }) int { return len(strings.Join(lines[:p.Line], "")) + p.Character }
			for _, c := range request.Edit["documentChanges"] { // main.go is the only document
				for _, e := range slices.Backward(c.Edits) { // the last edit first, because an edit moves the text behind it
					text = text[:offset(e.Range.Start)] + e.NewText + text[offset(e.Range.End):]
				}
			}
			return object{"applied": len(request.Edit["documentChanges"]) > 0}, err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	doc := object{"uri": "file:///main.go", "languageId": "go", "version": 1, "text": text}
	lspconn.Notify(ctx, conn, "textDocument/didOpen", object{"textDocument": doc})
	at := object{"textDocument": doc, "position": object{"line": 2, "character": 15}}
	hover, hoverErr := lspconn.Call[struct{ Contents struct{ Value string } }](ctx, conn, "textDocument/hover", at)
	add := object{"command": "gopls.add_import", "arguments": []object{{"URI": doc["uri"], "ImportPath": "os"}}}
	_, editErr := lspconn.Call[any](ctx, conn, "workspace/executeCommand", add)
	_, closeErr := conn.Close(ctx) // afterwards, no handler uses text
	fmt.Printf("%s\n%s", hover.Contents.Value, text)
	if err := errors.Join(hoverErr, editErr, closeErr); err != nil {
		log.Fatal(err)
	}
}
