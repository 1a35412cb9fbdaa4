package launcher_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// The comment of a type that is declared in an internal package lists the fields of the type,
// because go doc cannot show them. The list has the fields that the type has, in their order.
func TestAliases_CommentOfEachTypeListsItsFields(t *testing.T) {
	comments := aliasComments(t)
	for name, typ := range map[string]reflect.Type{
		"CanaryCheck":  reflect.TypeFor[launcher.CanaryCheck](),
		"Event":        reflect.TypeFor[launcher.Event](),
		"GivenUpError": reflect.TypeFor[launcher.GivenUpError](),
		"Health":       reflect.TypeFor[launcher.Health](),
		"Instance":     reflect.TypeFor[launcher.Instance](),
		"LimitConfig":  reflect.TypeFor[launcher.LimitConfig](),
		"Line":         reflect.TypeFor[launcher.Line](),
		"Probe":        reflect.TypeFor[launcher.Probe](),
		"Recovered":    reflect.TypeFor[launcher.Recovered](),
		"Recovery":     reflect.TypeFor[launcher.Recovery](),
		"Rlimit":       reflect.TypeFor[launcher.Rlimit](),
		"RollError":    reflect.TypeFor[launcher.RollError](),
		"RollStatus":   reflect.TypeFor[launcher.RollStatus](),
		"StateError":   reflect.TypeFor[launcher.StateError](),
		"Status":       reflect.TypeFor[launcher.Status](),
	} {
		var want []string
		for _, f := range reflect.VisibleFields(typ) {
			if f.IsExported() && len(f.Index) == 1 {
				want = append(want, f.Name)
			}
		}
		testkit.Equal(t, "fields of "+name, listedFields(comments[name]), want)
		delete(comments, name)
	}
	for name, text := range comments {
		if strings.Contains(text, "Its fields are") {
			t.Errorf("add %s to this test: its comment lists fields", name)
		}
	}
}

// aliasComments returns the comments of the type aliases of package launcher, by name.
func aliasComments(t *testing.T) map[string]string {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE {
				for _, s := range d.Specs {
					if s := s.(*ast.TypeSpec); s.Assign.IsValid() {
						comments[s.Name.Name] = d.Doc.Text() + s.Doc.Text()
					}
				}
			}
		}
	}
	return comments
}

var fieldLine = regexp.MustCompile(`(?m)^\t([A-Z]\w*(?:, [A-Z]\w*)*) +\S`)

// listedFields returns the names at the beginnings of the indented lines of a comment, which look
// like the fields of a struct.
func listedFields(comment string) (names []string) {
	for _, m := range fieldLine.FindAllStringSubmatch(comment, -1) {
		names = append(names, strings.Split(m[1], ", ")...)
	}
	return names
}
