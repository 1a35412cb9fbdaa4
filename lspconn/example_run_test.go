package lspconn_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// examples has those examples of this package that start gopls, by name.
var examples = map[string]func(){
	"Example": Example, "ExampleAsync": ExampleAsync, "ExampleCall": ExampleCall, "ExampleConn": ExampleConn,
	"ExampleConnError": ExampleConnError, "ExampleConn_Force": ExampleConn_Force,
	"ExampleConn_NotifyLatest": ExampleConn_NotifyLatest, "ExampleConn_Scope": ExampleConn_Scope,
	"ExampleDelivery": ExampleDelivery, "ExampleExitError": ExampleExitError, "ExampleManager": ExampleManager,
	"ExampleManager_CloseKey": ExampleManager_CloseKey, "ExampleNewManager": ExampleNewManager,
	"ExampleNotify": ExampleNotify, "ExamplePanicError": ExamplePanicError, "ExampleProtocolError": ExampleProtocolError,
	"ExampleReport": ExampleReport, "ExampleResponseError": ExampleResponseError, "ExampleServer": ExampleServer,
	"ExampleStart": ExampleStart, "ExampleWithOnFailure": ExampleWithOnFailure,
	"ExampleWithOnRestart": ExampleWithOnRestart, "ExampleWithRestart": ExampleWithRestart,
}

// Each example prints what its comment "Prints:" says. On a busy machine, gopls may miss a
// deadline. So an example that prints something else is run up to two more times.
func TestExamples_PrintExpectedOutput(t *testing.T) {
	wants := printsComments(t)
	t.Setenv("PATH", filepath.Dir(testkit.Gopls(t))+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Chdir(workspace(t))
	for name, want := range wants {
		t.Run(name, func(t *testing.T) {
			example := examples[name]
			if example == nil {
				t.Fatal("this example is missing in the map examples; add it")
			}
			got := printed(t, example)
			for try := 0; got != want && try < 2; try++ {
				got = printed(t, example)
			}
			testkit.Equal(t, "output", got, want)
		})
	}
	testkit.Equal(t, "number of examples", len(wants), len(examples))
}

// printsComments returns the texts after "Prints:" in the comments of the examples, by the name of
// the example.
func printsComments(t *testing.T) map[string]string {
	files, err := filepath.Glob("example_*test.go")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			example, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(example.Name.Name, "Example") {
				continue
			}
			for _, c := range f.Comments {
				if text, ok := strings.CutPrefix(c.Text(), "Prints:"); ok && example.Pos() < c.Pos() && c.End() < example.End() {
					texts[example.Name.Name] = strings.TrimSpace(text) + "\n"
				}
			}
		}
	}
	return texts
}

// printed returns what f prints to standard output.
func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	f() // f must not print more than the pipe can hold
	w.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
