package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_PrintsHoverProgressAndEdit(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "main.go")
	for path, text := range map[string]string{
		filepath.Join(dir, "go.mod"): "module example.com/small\n\ngo 1.25\n",
		file:                         "package main\n\n// main does nothing.\nfunc main() {}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run(t.Context(), &out, testkit.Gopls(t), file, "4", "6"); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"main does nothing.", "progress ", "import \"os\"\n", "func main() {}\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not contain %q:\n%s", want, &out)
		}
	}
}

func TestRun_ReturnsErrorForInvalidArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"main.go", "x", "1"}, {"no-such-file.go", "1", "1"}} {
		if err := run(t.Context(), new(strings.Builder), "gopls", args...); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	if err := run(t.Context(), new(strings.Builder), "/no/such/gopls", "main.go", "1", "1"); err == nil {
		t.Error("a gopls that does not exist: no error")
	}
}

func TestDocument_AppliesSeveralEditsAtTheirOriginalPositions(t *testing.T) {
	d := &document{"file:///a.go", "one\ntwo\nthree\n"}
	err := d.apply([]byte(`{"edit":{"documentChanges":[{"textDocument":{"uri":"file:///a.go"},"edits":[
		{"range":{"start":{"line":0,"character":0},"end":{"line":0,"character":3}},"newText":"1\n1"},
		{"range":{"start":{"line":2,"character":5},"end":{"line":2,"character":5}},"newText":"!"}]}]}}`))
	if err != nil || d.text != "1\n1\ntwo\nthree!\n" {
		t.Errorf("%q, %v", d.text, err)
	}
}

func TestDocument_PositionBeyondEndMeansEndOfText(t *testing.T) {
	const most = "18446744073709551615" // the largest uint
	for _, end := range []string{`"line":9,"character":0`, `"line":2,"character":9`, `"line":` + most + `,"character":` + most} {
		d := &document{"file:///a.go", "one\ntwo\nthree\n"}
		err := d.apply([]byte(`{"edit":{"documentChanges":[{"textDocument":{"uri":"file:///a.go"},"edits":[
			{"range":{"start":{"line":1,"character":0},"end":{` + end + `}},"newText":"the end"}]}]}}`))
		if err != nil || d.text != "one\nthe end" {
			t.Errorf("up to %s: %q, %v", end, d.text, err)
		}
	}
}

func TestDocument_RefusesEditsThatItCannotMake(t *testing.T) {
	for _, params := range []string{
		`{"edit":{"documentChanges":[{"textDocument":{"uri":"file:///b.go"},"edits":[]}]}}`,
		`{"edit":{"documentChanges":[{"kind":"delete","uri":"file:///a.go"}]}}`,
		`{"edit":{"documentChanges":[{"textDocument":{"uri":"file:///a.go"},"edits":[{"range":{"start":{"line":-1}}}]}]}}`,
		`{"edit":{"changes":{"file:///a.go":[]}}}`,
		`{"edit":1}`,
	} {
		d := &document{"file:///a.go", "one\n"}
		if err := d.apply([]byte(params)); err == nil || d.text != "one\n" {
			t.Errorf("%s: %v, the text is %q", params, err, d.text)
		}
	}
}
