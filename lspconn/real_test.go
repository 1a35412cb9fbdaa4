package lspconn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/lspconn"
)

// A real is a server that tools/lsp/install puts into bin/lsp.
type real struct {
	name     string
	command  []string // below bin/lsp
	file     string   // of the workspace, to be opened
	language string
	text     string
	code     int // its exit code
}

const bin = "node_modules/.bin/"

var reals = []real{
	{"gopls", []string{"gopls"}, "main.go", "go", "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfmt.Println(1)\n}\n", 0},
	{"typescript-language-server", []string{bin + "typescript-language-server", "--stdio"}, "a.ts", "typescript", "const a: number = 1;\nexport function f(x: number) { return x + a; }\n", 0},
	{"tsc", []string{"node_modules/typescript7/bin/tsc", "--lsp", "--stdio"}, "b.ts", "typescript", "const a: number = 1;\nexport function f(x: number) { return x + a; }\n", 1},
	{"pyright", []string{bin + "pyright-langserver", "--stdio"}, "a.py", "python", "import os\n\ndef f(x: int) -> int:\n    return x + 1\n\nprint(f(2))\n", 0},
	{"yaml-language-server", []string{bin + "yaml-language-server", "--stdio"}, "a.yaml", "yaml", "a: 1\nb:\n  - c\n  - d\n", 0},
	{"vscode-json-language-server", []string{bin + "vscode-json-language-server", "--stdio"}, "a.json", "json", "{\n  \"a\": 1\n}\n", 0},
	{"vscode-css-language-server", []string{bin + "vscode-css-language-server", "--stdio"}, "a.css", "css", "a {\n  color: red;\n}\n", 0},
	{"vscode-html-language-server", []string{bin + "vscode-html-language-server", "--stdio"}, "a.html", "html", "<html>\n<body>\n<p>x</p>\n</body>\n</html>\n", 0},
	{"vscode-markdown-language-server", []string{bin + "vscode-markdown-language-server", "--stdio"}, "a.md", "markdown", "# a\n\n[b](a.md)\n", 0},
	{"vscode-eslint-language-server", []string{bin + "vscode-eslint-language-server", "--stdio"}, "a.js", "javascript", "var a = 1;\nfunction f() { return a; }\n", 0},
	{"bash-language-server", []string{bin + "bash-language-server", "start"}, "a.sh", "shellscript", "#!/bin/sh\na=1\necho $a\n", 0},
}

// workspace writes the files of all servers.
func workspace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"go.mod":        "module example.com/small\n\ngo 1.25\n",
		"tsconfig.json": `{"compilerOptions": {"strict": true, "module": "esnext"}}`,
	}
	for _, r := range reals {
		files[r.file] = r.text
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func fileURI(parts ...string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(parts...))}).String()
}

// server returns how to start it, or skips the test where it is not installed. In CI that is an error.
func (r real) server(t *testing.T, dir string) lspconn.Server {
	t.Helper()
	command := slices.Clone(r.command)
	path, err := filepath.Abs(filepath.Join("..", "bin", "lsp", command[0]))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed: run tools/lsp/install", r.name)
		}
		t.Skipf("%s is not installed: tools/lsp/install does it", r.name)
	}
	command[0] = path
	if r.name != "gopls" {
		if _, err := exec.LookPath("node"); err != nil {
			t.Skip("there is no node")
		}
	}
	root := fileURI(dir)
	params, _ := json.Marshal(map[string]any{
		"processId":        nil,
		"rootUri":          root,
		"capabilities":     map[string]any{"workspace": map[string]any{"configuration": true, "workspaceFolders": true}},
		"workspaceFolders": []any{map[string]any{"uri": root, "name": "small"}},
	})
	return lspconn.Server{
		Name: r.name, Command: command, Dir: dir, Initialize: params, CloseTimeout: 15 * time.Second,
		InitializeTimeout: 5 * time.Minute,
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

// use has a server do a little of everything: open, a hundred changes of which the latest count, hover, completion.
func (r real) use(t *testing.T, conn *lspconn.Conn, dir string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	doc := map[string]any{"uri": fileURI(dir, r.file)}
	send := func(v any) json.RawMessage {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return text
	}
	err := conn.Notify(ctx, "textDocument/didOpen", send(map[string]any{"textDocument": map[string]any{
		"uri": doc["uri"], "languageId": r.language, "version": 1, "text": r.text}}))
	if err != nil {
		t.Errorf("%s: didOpen: %v", r.name, err)
		return
	}
	var last *lspconn.Delivery
	for i := range 100 {
		last = conn.NotifyLatest(r.file, "textDocument/didChange", send(map[string]any{
			"textDocument":   map[string]any{"uri": doc["uri"], "version": 2 + i},
			"contentChanges": []any{map[string]any{"text": r.text + strings.Repeat("\n", i)}}}))
	}
	var calls sync.WaitGroup
	for _, method := range []string{"textDocument/hover", "textDocument/completion"} {
		calls.Go(func() {
			result, err := conn.Call(ctx, method, send(map[string]any{"textDocument": doc, "position": map[string]any{"line": 1, "character": 1}}))
			if err == nil && !json.Valid(result) {
				err = fmt.Errorf("the result is %q", result)
			}
			var refused *lspconn.ResponseError // eslint and others do not do all of it, and say so
			if err != nil && !asResponse(err, &refused) {
				t.Errorf("%s: %s: %v", r.name, method, err)
			}
		})
	}
	calls.Wait()
	if err := last.Wait(ctx); err != nil {
		t.Errorf("%s: didChange: %v", r.name, err)
	}
}

func asResponse(err error, target **lspconn.ResponseError) bool {
	r, ok := err.(*lspconn.ResponseError)
	*target = r
	return ok
}

func (r real) check(t *testing.T, report lspconn.Report) {
	t.Helper()
	t.Logf("%v; drain %v, handshake %v, leave %v, left %v", report, report.Drain, report.Handshake, report.Leave, report.Left)
	if r.name == "gopls" && report.Outcome == lspconn.HandshakeTimeout {
		return // its first shutdown takes as long as the machine needs to load the workspace
	}
	if report.Outcome != lspconn.Clean || report.Exit == nil || report.Exit.Code != r.code || len(report.Survivors) > 0 {
		t.Errorf("%v, want Clean and exit code %d, and nobody left", report, r.code)
	}
}

func TestReal(t *testing.T) {
	dir := workspace(t)
	for _, r := range reals {
		t.Run(r.name, func(t *testing.T) {
			conn := ready(t, r.server(t, dir))
			r.use(t, conn, dir)
			r.check(t, closed(t, conn))
		})
	}
}

// None of them survives its end before it is ready, or by force: neither node, nor the native children of node.
func TestReal_Abrupt(t *testing.T) {
	dir := workspace(t)
	for _, r := range reals {
		t.Run(r.name, func(t *testing.T) {
			server := r.server(t, dir)
			conn := start(t, server)
			report := closed(t, conn) // while it is Initializing, most likely
			if report.Outcome == lspconn.HandshakeTimeout || len(report.Survivors) > 0 {
				t.Errorf("%v", report)
			}
			conn = ready(t, server)
			conn.Scope().Force(nil)
			if report := closed(t, conn); report.Outcome != lspconn.Killed && report.Outcome != lspconn.Terminated || len(report.Survivors) > 0 {
				t.Errorf("by force: %v", report)
			}
		})
	}
}

// All of them together, under load, and closed side by side.
func TestReal_Together(t *testing.T) {
	dir := workspace(t)
	byName := map[string]real{}
	servers := map[string]lspconn.Server{}
	for _, r := range reals {
		byName[r.name] = r
		servers[r.name] = r.server(t, dir)
	}
	m := manager(t, func(key string) (lspconn.Server, error) { return servers[key], nil })
	var all sync.WaitGroup
	for _, r := range reals {
		all.Go(func() {
			conn, err := m.Conn(t.Context(), r.name)
			if err != nil {
				t.Error(err)
				return
			}
			r.use(t, conn, dir)
		})
	}
	all.Wait()
	begin := time.Now()
	reports, err := m.Close(context.Background())
	wall := time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	var slowest, sum time.Duration
	for _, report := range reports {
		byName[report.Name].check(t, report)
		slowest, sum = max(slowest, report.Total), sum+report.Total
	}
	equal(t, "servers", len(reals), len(reports))
	if wall >= sum { // however slow the machine: then they were closed one after the other
		t.Errorf("closing took %v, and the servers %v together", wall, sum)
	}
	t.Logf("closed in %v; the slowest took %v, all one after the other would have taken %v", wall, slowest, sum)
}
