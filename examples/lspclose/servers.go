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

// A languageServer is a server that this program can start, with the file that it opens in it.
type languageServer struct {
	command  []string
	file     string // name of the file
	language string // language identifier of the file, as defined by the protocol
	text     string // content of the file
}

var knownServers = []languageServer{
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

// createWorkspace creates a temporary folder that contains the files of all known servers.
func createWorkspace() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "lspclose-"); err != nil {
		return "", err
	}
	files := map[string]string{"go.mod": "module example.com/lspclose\n\ngo 1.25\n"}
	for _, s := range knownServers {
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

// server returns what lspconn needs to start the server in the folder dir.
func (s languageServer) server(dir string) lspconn.Server {
	root := fileURI(dir)
	params, _ := json.Marshal(map[string]any{
		"rootUri":          root,
		"capabilities":     map[string]any{"workspace": map[string]any{"configuration": true}},
		"workspaceFolders": []any{map[string]any{"uri": root, "name": "lspclose"}},
	})
	return lspconn.Server{Command: s.command, Dir: dir, Initialize: params, OnRequest: answerRequest}
}

// answerRequest answers the requests of a server: no setting is configured, and every other request
// is granted.
func answerRequest(_ context.Context, method string, params json.RawMessage) (any, error) {
	if method != "workspace/configuration" {
		return nil, nil
	}
	var p struct{ Items []any }
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, fmt.Errorf("workspace/configuration: %w", err)
	}
	return make([]any, len(p.Items)), nil
}

// openFile opens the file in the server and requests hover information about it, so that the server
// has work to do and state to clean up.
func (s languageServer) openFile(ctx context.Context, conn *lspconn.Conn, dir string) error {
	uri := fileURI(filepath.Join(dir, s.file))
	params, _ := json.Marshal(map[string]any{"textDocument": map[string]any{"uri": uri, "languageId": s.language, "version": 1, "text": s.text}})
	if err := conn.Notify(ctx, "textDocument/didOpen", params); err != nil {
		return err
	}
	params, _ = json.Marshal(map[string]any{"textDocument": map[string]any{"uri": uri}, "position": map[string]any{"line": 0, "character": 1}})
	_, err := conn.Call(ctx, "textDocument/hover", params)
	return err
}
