package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

type object map[string]any

// A position is a place in a document: a line and a column in bytes, both from 0.
type position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

type hover struct{ Contents struct{ Value string } }

// String returns what gopls says about a position.
func (h *hover) String() string {
	if h == nil { // the result was null
		return "gopls knows nothing about this position"
	}
	return h.Contents.Value
}

// A document is an open file, in the form in which LSP sends it.
type document struct {
	URI      string `json:"uri"`
	Language string `json:"languageId"`
	Version  int    `json:"version"`
	Text     string `json:"text"`
	dir      string
}

// open reads the file that the arguments name, and parses the line and the column in the arguments.
func open(args []string) (*document, position, error) {
	if len(args) != 3 {
		return nil, position{}, errors.New("usage: lsphover file.go line column")
	}
	line, err1 := strconv.Atoi(args[1])
	column, err2 := strconv.Atoi(args[2])
	path, err3 := filepath.Abs(args[0])
	text, err4 := os.ReadFile(path)
	return &document{fileURI(path), "go", 1, string(text), filepath.Dir(path)}, position{line - 1, column - 1}, errors.Join(err1, err2, err3, err4)
}

func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // on Windows, for a URI such as file:///C:/main.go
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// initialize returns the params of the request initialize: the folder of the document, and the
// capabilities of this client.
func (d *document) initialize() json.RawMessage {
	params, err := json.Marshal(object{
		"rootUri": d.URI[:strings.LastIndex(d.URI, "/")],
		"capabilities": object{
			"general":   object{"positionEncodings": []string{"utf-8"}}, // columns are bytes
			"window":    object{"workDoneProgress": true},
			"workspace": object{"applyEdit": true, "workspaceEdit": object{"documentChanges": true}, "didChangeWatchedFiles": object{"dynamicRegistration": true}},
		},
	})
	if err != nil {
		panic(err) // cannot happen, because the params consist of strings and booleans
	}
	return params
}

// apply makes the edits of a workspace/applyEdit request. It refuses edits of other documents.
func (d *document) apply(params json.RawMessage) error {
	type edit struct {
		Range   struct{ Start, End position }
		NewText string
	}
	var request struct {
		Edit struct {
			DocumentChanges []struct {
				TextDocument struct{ URI string }
				Edits        []edit
			}
		}
	}
	if err := json.Unmarshal(params, &request); err != nil {
		return err
	}
	for _, change := range request.Edit.DocumentChanges {
		if change.TextDocument.URI != d.URI {
			return fmt.Errorf("%s is not open", change.TextDocument.URI)
		}
		for _, e := range slices.Backward(change.Edits) { // from the end to the start, so that no edit moves the place of a later one
			d.Text = d.Text[:d.offset(e.Range.Start)] + e.NewText + d.Text[d.offset(e.Range.End):]
		}
		d.Version++
	}
	return nil
}

// offset returns the offset of a position in the text. For a position after the end of the text, it
// returns the end.
func (d *document) offset(p position) int {
	n := 0
	for range p.Line {
		n += strings.IndexByte(d.Text[n:], '\n') + 1
	}
	return min(n+p.Character, len(d.Text))
}
