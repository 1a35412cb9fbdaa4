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
	"sync/atomic"
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
	code     int           // its exit code
	leave    time.Duration // it takes at least so long from exit to its end
}

const bin = "node_modules/.bin/"

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

// use has a server do a little of everything: open, a hundred changes of which the latest count, hover, completion.
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

// change returns params of didChange: the text, with more at its end.
func (r real) change(dir string, version int, more string) json.RawMessage {
	return encoded(map[string]any{
		"textDocument":   map[string]any{"uri": fileURI(dir, r.file), "version": version},
		"contentChanges": []any{map[string]any{"text": r.text + more}}})
}

// position returns params of hover and completion.
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

func (r real) check(t *testing.T, report lspconn.Report) {
	t.Helper()
	t.Logf("%v; drain %v, handshake %v, leave %v, left %v", report, report.Drain, report.Handshake, report.Leave, report.Left)
	if r.name == "gopls" && report.Outcome == lspconn.HandshakeTimeout {
		return // its first shutdown takes as long as the machine needs to load the workspace
	}
	if report.Outcome != lspconn.Clean || report.Exit == nil || report.Exit.Code != r.code || len(report.Survivors) > 0 {
		t.Errorf("%v, want Clean and exit code %d, and nobody left", report, r.code)
	}
	if report.Leave < r.leave {
		t.Errorf("it has left in %v, and used to take %v", report.Leave, r.leave)
	}
}

// A somebody is a process.
type somebody struct {
	name string
	pid  int
}

// empty looks for who carries the variable that only this server has had in its environment, whatever a report says.
func empty(t *testing.T, server lspconn.Server) {
	t.Helper()
	if left := carrying(server.Env[len(server.Env)-1]); len(left) > 0 {
		t.Errorf("%s is closed, and these are still there: %v", server.Name, left)
	}
}

func TestReal(t *testing.T) {
	dir := workspace(t)
	for _, r := range reals {
		t.Run(r.name, func(t *testing.T) {
			server := r.server(t, dir)
			conn := ready(t, server)
			r.use(t, conn, dir)
			r.check(t, closed(t, conn))
			empty(t, server)
		})
	}
}

// None of them survives its end before it is ready, or by force: neither node, nor the native children of node.
func TestReal_Abrupt(t *testing.T) {
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
				report := closed(t, conn) // while it is Initializing, most likely
				if report.Outcome == lspconn.HandshakeTimeout || len(report.Survivors) > 0 {
					t.Errorf("%v", report)
				}
				empty(t, server)
				if conn, err = by.start(t.Context(), server); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Ready(t.Context()); err != nil {
					t.Error(err)
				}
				conn.Scope().Force(nil)
				report = closed(t, conn)
				want := lspconn.Terminated
				if report.Exit.Signal == "killed" {
					want = lspconn.Killed
				}
				if report.Outcome != want || len(report.Survivors) > 0 {
					t.Errorf("by force: %v, want %v", report, want)
				}
				empty(t, server)
			})
		}
	}
}

// All of them together, under load until they are closed, side by side: every caller is answered.
func TestReal_Together(t *testing.T) {
	dir := workspace(t)
	byName := map[string]real{}
	servers := map[string]lspconn.Server{}
	side := gather(len(reals))
	for _, r := range reals {
		byName[r.name] = r
		server := r.server(t, dir)
		server.Logger = at("Closing", func() { side.by(t) })
		servers[r.name] = server
	}
	m := manager(t, func(key string) (lspconn.Server, error) { return servers[key], nil })
	var all, callers sync.WaitGroup
	for _, r := range reals {
		all.Go(func() {
			conn, err := m.Conn(t.Context(), r.name)
			if err != nil {
				t.Error(err)
				return
			}
			r.use(t, conn, dir)
			busy := make(chan struct{})
			callers.Go(func() { r.work(t, conn, dir, sync.OnceFunc(func() { close(busy) })) })
			<-busy
		})
	}
	all.Wait()
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
		empty(t, servers[report.Name])
		slowest, sum = max(slowest, report.Total), sum+report.Total
	}
	equal(t, "servers", len(reals), len(reports))
	t.Logf("closed in %v; the slowest took %v, all one after the other would have taken %v", wall, slowest, sum)
}

// work changes and asks, again and again, until it is told that the connection is closing. The last one is then in flight,
// or just about to be. started is called when the server has answered once.
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

// A gathering holds up everybody until all are there: who would come only after others have gone never does.
type gathering struct {
	missing atomic.Int64
	all     chan struct{}
}

func gather(n int) *gathering {
	g := &gathering{all: make(chan struct{})}
	g.missing.Store(int64(n))
	return g
}

func (g *gathering) by(t *testing.T) {
	if g.missing.Add(-1) == 0 {
		close(g.all)
	}
	select {
	case <-g.all:
	case <-time.After(tooLong):
		t.Errorf("not closed side by side: %d wait for others", g.missing.Load())
	}
}
