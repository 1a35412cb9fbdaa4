//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/lspconn"
)

// A realServer is a language server that tools/lsp/install has installed, with the file that it
// opens.
type realServer struct {
	name                 string
	command              []string
	file, language, text string
}

var known = []realServer{
	{"gopls", []string{"gopls"}, "main.go", "go", "package main\n\nfunc main() {}\n"},
	{"typescript-language-server", []string{"node_modules/.bin/typescript-language-server", "--stdio"}, "a.ts", "typescript", "export const a = 1;\n"},
	{"tsc", []string{"node_modules/typescript7/bin/tsc", "--lsp", "--stdio"}, "b.ts", "typescript", "export const a = 1;\n"},
	{"pyright", []string{"node_modules/.bin/pyright-langserver", "--stdio"}, "a.py", "python", "a = 1\n"},
	{"yaml-language-server", []string{"node_modules/.bin/yaml-language-server", "--stdio"}, "a.yaml", "yaml", "a: 1\n"},
	{"vscode-json", []string{"node_modules/.bin/vscode-json-language-server", "--stdio"}, "a.json", "json", "{\"a\": 1}\n"},
	{"vscode-css", []string{"node_modules/.bin/vscode-css-language-server", "--stdio"}, "a.css", "css", "a { color: red; }\n"},
	{"vscode-html", []string{"node_modules/.bin/vscode-html-language-server", "--stdio"}, "a.html", "html", "<p>a</p>\n"},
	{"vscode-markdown", []string{"node_modules/.bin/vscode-markdown-language-server", "--stdio"}, "a.md", "markdown", "# a\n"},
	{"vscode-eslint", []string{"node_modules/.bin/vscode-eslint-language-server", "--stdio"}, "a.js", "javascript", "var a = 1;\n"},
	{"bash-language-server", []string{"node_modules/.bin/bash-language-server", "start"}, "a.sh", "shellscript", "echo 1\n"},
	{"clangd", []string{"clangd"}, "a.c", "c", "int main(void) { return 0; }\n"},
	{"ast-grep", []string{"node_modules/.bin/ast-grep", "lsp"}, "c.js", "javascript", "var a = 1;\n"},
}

const realTimeout = 15 * time.Second

// realServers closes the installed servers side by side, at rest and under load. The names of the
// servers to measure are in selected, separated by commas. If selected is empty, all of them are
// measured. In CI, realServers fails if one of these servers is not installed.
func realServers(w io.Writer, folder, selected string, load int) error {
	dir, err := os.MkdirTemp("", "measure-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	files := map[string]string{
		"go.mod":       "module example.com/small\n\ngo 1.25\n",
		"sgconfig.yml": "ruleDirs: []\n", // the server ast-grep exits at once if this file is missing
	}
	var installed []realServer
	for _, s := range known {
		if selected != "" && !slices.Contains(strings.Split(selected, ","), s.name) {
			continue
		}
		files[s.file] = s.text
		path, err := filepath.Abs(filepath.Join(folder, s.command[0]))
		if err != nil {
			return err
		}
		if _, err := os.Stat(path); err == nil {
			s.command = append([]string{path}, s.command[1:]...)
			installed = append(installed, s)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if want := strings.Count(selected, ",") + 1; selected != "" && len(installed) < want && os.Getenv("CI") != "" {
		return fmt.Errorf("-only %s: %d of these %d servers are installed in %s; install them: make servers", selected, len(installed), want, folder)
	}
	fmt.Fprintf(w, "\n## Real servers\n\n%d servers, each with an open document, closed side by side: at rest, and beside %d busy processes.\n\n", len(installed), load)
	if len(installed) == 0 {
		fmt.Fprintln(w, "No server is installed; `make servers` installs them.")
		return nil
	}
	rest, restWall, err := closeTogether(installed, dir)
	if err != nil {
		return err
	}
	stop := startLoad(load)
	busy, busyWall, err := closeTogether(installed, dir)
	stop()
	if err != nil {
		return err
	}
	figures.Row(w, "server", "at rest", "", "under load", "")
	figures.Row(w, "---", "---", "---:", "---", "---:")
	how := func(r lspconn.Report) string { return fmt.Sprintf("%v, %v", r.Outcome, r.Exit) }
	for _, s := range installed {
		figures.Row(w, s.name, how(rest[s.name]), seconds(rest[s.name].Total), how(busy[s.name]), seconds(busy[s.name].Total))
	}
	figures.Row(w, "all", "", seconds(restWall), "", seconds(busyWall))
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// closeTogether starts the servers, opens a document in each, and closes all of them.
func closeTogether(servers []realServer, dir string) (map[string]lspconn.Report, time.Duration, error) {
	byName := map[string]realServer{}
	for _, s := range servers {
		byName[s.name] = s
	}
	m, err := lspconn.NewManager(context.Background(), func(key string) (lspconn.Server, error) {
		return byName[key].lsp(dir), nil
	}, lspconn.WithCloseTimeout(realTimeout))
	if err != nil {
		return nil, 0, err
	}
	var all sync.WaitGroup
	errs := make(chan error, len(servers))
	for _, s := range servers {
		all.Go(func() { errs <- s.open(m, dir) })
	}
	all.Wait()
	for range servers {
		if err := <-errs; err != nil {
			m.Close(context.Background())
			return nil, 0, err
		}
	}
	begin := time.Now()
	reports, err := m.Close(context.Background())
	wall := time.Since(begin)
	found := map[string]lspconn.Report{}
	for _, r := range reports {
		found[r.Key] = r
	}
	if err == nil && wall > realTimeout {
		err = fmt.Errorf("closing the real servers took %v, longer than the deadline of %v", wall, realTimeout)
	}
	return found, wall, err
}

func (s realServer) lsp(dir string) lspconn.Server {
	return lspconn.Server{
		Name: s.name, Command: s.command, Dir: dir, InitializeTimeout: 5 * time.Minute,
		Initialize: encode(map[string]any{
			"rootUri":          "file://" + dir,
			"capabilities":     map[string]any{"workspace": map[string]any{"configuration": true}},
			"workspaceFolders": []any{map[string]any{"uri": "file://" + dir, "name": "small"}},
		}),
		OnRequest: func(_ context.Context, method string, params json.RawMessage) (any, error) {
			if method != "workspace/configuration" {
				return nil, nil
			}
			var p struct{ Items []any }
			err := json.Unmarshal(params, &p)
			return make([]any, len(p.Items)), err
		},
	}
}

// open starts the server, opens its document, and asks for a hover. The response shows that the
// server has read the document, even if the response is an error.
func (s realServer) open(m *lspconn.Manager, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	conn, err := m.Conn(ctx, s.name)
	if err != nil {
		return err
	}
	if _, err := conn.Ready(ctx); err != nil {
		return err
	}
	uri := "file://" + filepath.Join(dir, s.file)
	err = conn.Notify(ctx, "textDocument/didOpen", encode(map[string]any{"textDocument": map[string]any{
		"uri": uri, "languageId": s.language, "version": 1, "text": s.text}}))
	if err != nil {
		return err
	}
	conn.Call(ctx, "textDocument/hover", encode(map[string]any{
		"textDocument": map[string]any{"uri": uri}, "position": map[string]any{"line": 0, "character": 1}}))
	return conn.Err()
}

func encode(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
