package lspconn_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// A real describes a language server that tools/lsp/install has installed in bin/lsp.
type real struct {
	name     string
	command  []string // the path of the command is relative to bin/lsp
	file     string   // the file of the workspace that the test opens
	language string
	text     string
	code     int           // the exit code of the server
	leave    time.Duration // the process runs at least this long after the exit notification
}

const bin = "node_modules/.bin/"

// realTimeout is the deadline for closing real servers: the longest that is allowed.
const realTimeout = 15 * time.Second

var reals = []real{
	{"gopls", []string{"gopls"}, "main.go", "go", "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfmt.Println(1)\n}\n", 0, 0},
	{"typescript-language-server", []string{bin + "typescript-language-server", "--stdio"}, "a.ts", "typescript", "const a: number = 1;\nexport function f(x: number) { return x + a; }\n", 0, 0},
	{"tsc", []string{"node_modules/typescript7/bin/tsc", "--lsp", "--stdio"}, "b.ts", "typescript", "const a: number = 1;\nexport function f(x: number) { return x + a; }\n", 1, 0},
	{"pyright", []string{bin + "pyright-langserver", "--stdio"}, "a.py", "python", "import os\n\ndef f(x: int) -> int:\n    return x + 1\n\nprint(f(2))\n", 0, 0},
	{"yaml-language-server", []string{bin + "yaml-language-server", "--stdio"}, "a.yaml", "yaml", "a: 1\nb:\n  - c\n  - d\n", 0, 0},
	{"vscode-json-language-server", []string{bin + "vscode-json-language-server", "--stdio"}, "a.json", "json", "{\n  \"a\": 1\n}\n", 0, 0},
	{"vscode-css-language-server", []string{bin + "vscode-css-language-server", "--stdio"}, "a.css", "css", "a {\n  color: red;\n}\n", 0, 0},
	{"vscode-html-language-server", []string{bin + "vscode-html-language-server", "--stdio"}, "a.html", "html", "<html>\n<body>\n<p>x</p>\n</body>\n</html>\n", 0, 0},
	{"vscode-markdown-language-server", []string{bin + "vscode-markdown-language-server", "--stdio"}, "a.md", "markdown", "# a\n\n[b](a.md)\n", 0, 0},
	{"vscode-eslint-language-server", []string{bin + "vscode-eslint-language-server", "--stdio"}, "a.js", "javascript", "var a = 1;\nfunction f() { return a; }\n", 0, 900 * time.Millisecond},
	{"bash-language-server", []string{bin + "bash-language-server", "start"}, "a.sh", "shellscript", "#!/bin/sh\na=1\necho $a\n", 0, 0},
	{"clangd", []string{"clangd"}, "a.c", "c", "int a = 1;\nint main(void) { return a; }\n", 0, 0},
	{"ast-grep", []string{bin + "ast-grep", "lsp"}, "c.js", "javascript", "var a = 1;\nfunction f() { return a; }\n", 0, 0}, // a script for node, which starts the server
}

// workspace writes the files that the servers open.
func workspace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"go.mod":        "module example.com/small\n\ngo 1.25\n",
		"tsconfig.json": `{"compilerOptions": {"strict": true, "module": "esnext"}}`,
		"sgconfig.yml":  "ruleDirs: []\n", // without this file, ast-grep exits
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

// server returns a Server that starts this language server. If it is not installed, the test is
// skipped, or fails in CI.
func (r real) server(t *testing.T, dir string) lspconn.Server {
	t.Helper()
	command := slices.Clone(r.command)
	command[0] = testkit.LanguageServer(t, command[0])
	if strings.HasPrefix(r.command[0], bin) || r.name == "tsc" {
		if _, err := exec.LookPath("node"); err != nil {
			t.Skip("there is no node")
		}
	}
	root := fileURI(dir)
	params, _ := json.Marshal(map[string]any{
		"processId":        os.Getpid(),
		"rootUri":          root,
		"capabilities":     map[string]any{"workspace": map[string]any{"configuration": true, "workspaceFolders": true}},
		"workspaceFolders": []any{map[string]any{"uri": root, "name": "small"}},
	})
	return lspconn.Server{
		Name: r.name, Command: command, Dir: dir, Initialize: params, CloseTimeout: realTimeout,
		InitializeTimeout: 5 * time.Minute, Env: append(os.Environ(), "LSPCONN_TEST_REAL="+rand.Text()),
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

// use sends typical messages to the server: it opens a document, changes it a hundred times with
// NotifyLatest, and requests hover and completion.
func (r real) use(t *testing.T, conn *lspconn.Conn, dir string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := conn.Notify(ctx, "textDocument/didOpen", encoded(map[string]any{"textDocument": map[string]any{
		"uri": fileURI(dir, r.file), "languageId": r.language, "version": 1, "text": r.text}}))
	if err != nil {
		t.Errorf("%s: didOpen: %v", r.name, err)
		return
	}
	var last *lspconn.Delivery
	for i := range 100 {
		last = conn.NotifyLatest(r.file, "textDocument/didChange", r.change(dir, 2+i, strings.Repeat("\n", i)))
	}
	var calls sync.WaitGroup
	for _, method := range []string{"textDocument/hover", "textDocument/completion"} {
		calls.Go(func() {
			result, err := conn.Call(ctx, method, r.position(dir))
			if err == nil && !json.Valid(result) {
				err = fmt.Errorf("the result is %q", result)
			}
			// Accept an error in the response: some servers, such as eslint, answer some methods
			// with one.
			var refused *lspconn.ResponseError
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

// change returns the params of a didChange notification: the original text with the given addition.
func (r real) change(dir string, version int, more string) json.RawMessage {
	return encoded(map[string]any{
		"textDocument":   map[string]any{"uri": fileURI(dir, r.file), "version": version},
		"contentChanges": []any{map[string]any{"text": r.text + more}}})
}

// position returns the params of a hover or completion request.
func (r real) position(dir string) json.RawMessage {
	return encoded(map[string]any{"textDocument": map[string]any{"uri": fileURI(dir, r.file)}, "position": map[string]any{"line": 1, "character": 1}})
}

func encoded(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func asResponse(err error, target **lspconn.ResponseError) bool {
	r, ok := err.(*lspconn.ResponseError)
	*target = r
	return ok
}

// check checks the report of a server that was closed while it was idle or busy. If closing took
// less than a fifth of the deadline, the report must be Clean: each step gets at least that time,
// so no step can have been cut short.
func (r real) check(t *testing.T, report lspconn.Report) {
	t.Helper()
	t.Logf("%v; drain %v, handshake %v, leave %v, left %v", report, report.Drain, report.Handshake, report.Leave, report.Left)
	if report.Outcome == lspconn.Unconfirmed || report.Exit == nil || len(report.Survivors) > 0 {
		t.Fatalf("report %v, want no process left", report)
	}
	if report.Outcome != lspconn.Clean && report.Total >= realTimeout/5 {
		return
	}
	if report.Outcome != lspconn.Clean || report.Exit.Code != r.code {
		t.Errorf("report %v, want Clean and exit code %d", report, r.code)
	}
	if report.Leave < r.leave {
		t.Errorf("the server ended after %v, want at least %v as in earlier versions", report.Leave, r.leave)
	}
}

// An osProcess is a process of the operating system.
type osProcess struct {
	name string
	pid  int
}

// checkNoneLeft checks that no process has the variable of this server in its environment. The
// check does not rely on the report of the connection.
func checkNoneLeft(t *testing.T, server lspconn.Server) {
	t.Helper()
	if left := withVariable(server.Env[len(server.Env)-1]); len(left) > 0 {
		t.Errorf("%s is closed, but these processes are still running: %v", server.Name, left)
	}
}

func TestRealServers_ExitCleanlyOnClose(t *testing.T) {
	dir := workspace(t)
	for _, r := range reals {
		t.Run(r.name, func(t *testing.T) {
			server := r.server(t, dir)
			conn := startReady(t, server)
			r.use(t, conn, dir)
			r.check(t, mustClose(t, conn))
			checkNoneLeft(t, server)
		})
	}
}

// If a server is closed before it is ready, or by Force, none of its processes survives, including
// node and the native children of node.
func TestRealServers_LeaveNoProcessWhenKilled(t *testing.T) {
	dir := workspace(t)
	for _, by := range []struct {
		name  string
		start func(context.Context, lspconn.Server) (*lspconn.Conn, error)
	}{{"contained", lspconn.Start}, {"walk", lspconn.StartByWalk}} {
		for _, r := range reals {
			t.Run(by.name+"/"+r.name, func(t *testing.T) {
				server := r.server(t, dir)
				conn, err := by.start(t.Context(), server)
				if err != nil {
					t.Fatal(err)
				}
				// the server has had no time to answer initialize, so the connection is most likely
				// Initializing
				report := mustClose(t, conn)
				if len(report.Survivors) > 0 {
					t.Errorf("%v", report)
				}
				checkNoneLeft(t, server)
				if conn, err = by.start(t.Context(), server); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Ready(t.Context()); err != nil {
					t.Error(err)
				}
				conn.Force(nil)
				report = mustClose(t, conn)
				// Force also stops the connection, so a fast server may exit before it is killed.
				if killed := report.Exit.Signal == "killed"; killed != (report.Outcome == lspconn.Killed) || len(report.Survivors) > 0 {
					t.Errorf("report after Force: %v", report)
				}
				checkNoneLeft(t, server)
			})
		}
	}
}

// All servers run at the same time, and receive calls until their connections are closed. Every
// call returns, with a result or an error.
func TestRealServers_EveryCallReturnsWhenAllCloseUnderLoad(t *testing.T) {
	dir := workspace(t)
	byName := map[string]real{}
	servers := map[string]lspconn.Server{}
	for _, r := range reals {
		byName[r.name] = r
		server := r.server(t, dir)
		servers[r.name] = server
	}
	m := manager(t, func(key string) (lspconn.Server, error) { return servers[key], nil })
	conns := make([]*lspconn.Conn, len(reals))
	var all, busy, callers sync.WaitGroup
	for i, r := range reals {
		all.Go(func() {
			conn, err := m.Conn(t.Context(), r.name)
			if err != nil {
				t.Error(err)
				return
			}
			r.use(t, conn, dir)
			conns[i] = conn
		})
	}
	all.Wait()
	for i, r := range reals {
		if conns[i] != nil {
			busy.Add(1)
			callers.Go(func() { r.work(t, conns[i], dir, sync.OnceFunc(busy.Done)) })
		}
	}
	busy.Wait()
	begin := time.Now()
	reports, err := m.Close(context.Background())
	wall := time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	callers.Wait()
	var slowest, sum time.Duration
	for _, report := range reports {
		byName[report.Name].check(t, report)
		checkNoneLeft(t, servers[report.Name])
		slowest, sum = max(slowest, report.Total), sum+report.Total
	}
	testkit.Equal(t, "servers", len(reports), len(reals))
	t.Logf("closed in %v; the slowest phases %v, all one after the other would have taken %v", wall, slowest, sum)
}

// work changes the document and sends requests until the connection is closing, so that a request
// is pending when it closes. It calls started after the server has first answered.
func (r real) work(t *testing.T, conn *lspconn.Conn, dir string, started func()) {
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			defer started()
			for closing := false; !closing; started() {
				change := conn.NotifyLatest(r.file, "textDocument/didChange", r.change(dir, 1000, "\n"))
				result, err := conn.Call(context.Background(), "textDocument/hover", r.position(dir))
				closing = errors.Is(err, lspconn.ErrClosing)
				var refused *lspconn.ResponseError
				if err == nil && !json.Valid(result) || err != nil && !closing && !asResponse(err, &refused) {
					t.Errorf("%s: hover: %s, %v", r.name, result, err)
				}
				if err := change.Wait(context.Background()); err != nil && err != lspconn.ErrSuperseded && !errors.Is(err, lspconn.ErrClosing) {
					t.Errorf("%s: didChange: %v", r.name, err)
				}
			}
		})
	}
	callers.Wait()
}
