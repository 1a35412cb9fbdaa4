package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/swansong-go/swansong/lspconn"
)

// A known is a language server that this program looks for.
type known struct {
	command  []string
	file     string // to be opened
	language string
	text     string
}

var servers = []known{
	{[]string{"gopls"}, "main.go", "go", "package main\n\nfunc main() {}\n"},
	{[]string{"typescript-language-server", "--stdio"}, "a.ts", "typescript", "export const a = 1;\n"},
	{[]string{"pyright-langserver", "--stdio"}, "a.py", "python", "a = 1\n"},
	{[]string{"bash-language-server", "start"}, "a.sh", "shellscript", "echo 1\n"},
	{[]string{"yaml-language-server", "--stdio"}, "a.yaml", "yaml", "a: 1\n"},
	{[]string{"vscode-json-language-server", "--stdio"}, "a.json", "json", "{\"a\": 1}\n"},
	{[]string{"vscode-css-language-server", "--stdio"}, "a.css", "css", "a { color: red; }\n"},
	{[]string{"vscode-html-language-server", "--stdio"}, "a.html", "html", "<p>a</p>\n"},
	{[]string{"vscode-markdown-language-server", "--stdio"}, "a.md", "markdown", "# a\n"},
	{[]string{"vscode-eslint-language-server", "--stdio"}, "a.js", "javascript", "var a = 1;\n"},
	{[]string{"rust-analyzer"}, "a.rs", "rust", "fn main() {}\n"},
	{[]string{"clangd"}, "a.c", "c", "int main(void) { return 0; }\n"},
	{[]string{"lua-language-server"}, "a.lua", "lua", "local a = 1\n"},
	{[]string{"zls"}, "a.zig", "zig", "pub fn main() void {}\n"},
}

// workspace writes the files that the servers open.
func workspace() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "lspclose-"); err != nil {
		return "", err
	}
	files := map[string]string{"go.mod": "module example.com/lspclose\n\ngo 1.25\n"}
	for _, s := range servers {
		files[s.file] = s.text
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

func fileURI(path string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()
}

// server is what lspconn has to know of it.
func (k known) server(dir string) lspconn.Server {
	root := fileURI(dir)
	params, _ := json.Marshal(map[string]any{
		"processId":        os.Getpid(),
		"rootUri":          root,
		"capabilities":     map[string]any{"workspace": map[string]any{"configuration": true}},
		"workspaceFolders": []any{map[string]any{"uri": root, "name": "lspclose"}},
	})
	return lspconn.Server{Command: k.command, Dir: dir, Initialize: params, OnRequest: answer}
}

// answer answers what servers ask: nothing is configured, and all that they want to do is fine.
func answer(_ context.Context, method string, params json.RawMessage) (any, error) {
	if method != "workspace/configuration" {
		return nil, nil
	}
	var p struct{ Items []any }
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, fmt.Errorf("workspace/configuration: %w", err)
	}
	return make([]any, len(p.Items)), nil
}

// open opens the file and asks for something, so that the server has something to do and to clean up.
func (k known) open(ctx context.Context, conn *lspconn.Conn, dir string) error {
	uri := fileURI(filepath.Join(dir, k.file))
	params, _ := json.Marshal(map[string]any{"textDocument": map[string]any{"uri": uri, "languageId": k.language, "version": 1, "text": k.text}})
	if err := conn.Notify(ctx, "textDocument/didOpen", params); err != nil {
		return err
	}
	params, _ = json.Marshal(map[string]any{"textDocument": map[string]any{"uri": uri}, "position": map[string]any{"line": 0, "character": 1}})
	_, err := conn.Call(ctx, "textDocument/hover", params)
	return err
}
