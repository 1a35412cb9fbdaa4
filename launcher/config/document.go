package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/swansong-go/swansong/launcher/internal/regular"
	"go.yaml.in/yaml/v4"
)

// maxFile bounds how much is read. Without a limit, a wrong file name such as /dev/zero would
// exhaust the memory.
const maxFile = 4 << 20

// ReadFile reads a file for [Parse]. If the file is a pipe, it waits for the program that writes to
// the pipe. The error is an [*Error] without a line.
func ReadFile(file string) ([]byte, error) { return readFile(file, os.Open) }

func readFile(file string, open opener) ([]byte, error) {
	f, err := open(file)
	if err != nil {
		return nil, unreadable(file, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, &Error{File: file, Rule: "is a directory; name a file in it"}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, unreadable(file, err)
	}
	if len(text) > maxFile {
		return nil, &Error{File: file, Rule: fmt.Sprintf("is larger than %v, the limit for a configuration file", Bytes(maxFile))}
	}
	return text, nil
}

// An opener opens a file for reading. That is [os.Open], which waits for a program that writes to a
// pipe, or a function that waits for no program.
type opener = func(name string) (*os.File, error)

// openAgain opens a file that a launcher has read before. It refuses a pipe, such as the one that
// run -f <(make-config) reads at the start: nothing may ever write to that pipe again, and opening
// it would wait forever.
func openAgain(name string) (*os.File, error) {
	return regular.Open(name, ", so the launcher can read it only once, at its start; use a regular file")
}

// openForDir opens a file for [DirOf].
func openForDir(name string) (*os.File, error) {
	return regular.Open(name, "; to find the launcher, name its directory by --dir")
}

// unreadable returns the error of a file that cannot be read. It wraps the error of the file
// system.
func unreadable(file string, err error) error {
	return &locatedError{&Error{File: file, Rule: fmt.Sprintf("cannot be read: %v", withoutPath(err))}, err}
}

// withoutPath returns the error in err if err is a [fs.PathError], and otherwise err. It is for
// messages that begin with the path. It does not look for a PathError that err wraps: the text
// around it must not be lost.
func withoutPath(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}

// document reads the text into c. It returns false if the text is not exactly one YAML document
// with a mapping.
//
// A second document is an error and not ignored: its groups would be missing without a word.
func (d *decoder) document(text []byte, c *Config) bool {
	if at, rule := findBadText(text); rule != "" {
		d.add(at, "", rule)
		return false
	}
	// The parser need not check for duplicate keys, because pairs finds and reports all of them.
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithUniqueKeys(false))
	var doc, next yaml.Node
	if err == nil {
		err = loader.Load(&doc)
	}
	switch {
	case errors.Is(err, io.EOF), err == nil && len(doc.Content) == 0, err == nil && doc.Content[0].ShortTag() == "!!null":
		d.add(position{1, 1}, "", "is empty; it needs process_groups, as in process_groups: [{name: web}]")
		return false
	case err == nil:
		err = loader.Load(&next)
	}
	switch {
	case err == nil:
		d.add(position{next.Line, next.Column}, "", "a second document begins here (---); a file has one document, so put all groups into it, or into another file")
		return false
	case !errors.Is(err, io.EOF):
		d.notYAML(text, err)
		return false
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		d.failAt(root, "", "must be a mapping with process_groups in it, not %s", kindOf(root))
		return false
	}
	d.lines[""] = position{root.Line, root.Column} // errors about missing top-level keys name this position
	d.value(root, "", &setting{keys: configKeys}, reflect.ValueOf(c).Elem())
	return true
}

// notYAML reports an error of the parser. It rewords the most common ones.
func (d *decoder) notYAML(text []byte, err error) {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		d.add(position{1, 1}, "", "is not YAML: "+err.Error())
		return
	}
	at := position{max(e.Mark.Line, 1), max(e.Mark.Column, 1)}
	rule := strings.TrimPrefix(e.Message, "yaml: ")
	if e.ContextMsg != "" {
		rule += " " + e.ContextMsg
		if e.ContextMark.Line > 0 && e.ContextMark.Line != at.line {
			rule += fmt.Sprintf(" that begins in line %d", e.ContextMark.Line)
		}
	}
	switch c := runeAt(text, at); {
	case c == '\t':
		rule = "a tab is not allowed here; indent with spaces"
	case strings.Contains(rule, "cannot start any token"):
		rule = fmt.Sprintf("a value cannot begin with %q; put it in quotes", c)
	}
	d.add(at, "", "is not YAML: "+rule)
}

// runeAt returns the character at a position, or 0. Columns count characters.
func runeAt(text []byte, at position) rune {
	line := at.line
	for l := range bytes.Lines(text) {
		if line--; line > 0 {
			continue
		}
		if all := []rune(string(l)); at.column <= len(all) {
			return all[at.column-1]
		}
		break
	}
	return 0
}

// findBadText finds bytes and characters that YAML does not allow. The parser would report them
// without their position.
func findBadText(text []byte) (at position, rule string) {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return position{}, "" // UTF-16, which the parser decodes and checks itself
	}
	line, column := 1, 1
	for rest := text; len(rest) > 0; {
		c, n := utf8.DecodeRune(rest)
		switch {
		case c == utf8.RuneError && n == 1:
			return position{line, column}, fmt.Sprintf("is not UTF-8: it has the byte 0x%02x; save the file as UTF-8", rest[0])
		case c < ' ' && c != '\t' && c != '\n' && c != '\r', c == 0xfffe, c == 0xffff:
			return position{line, column}, fmt.Sprintf("is not YAML: it has the control character %U; in double quotes it can be written as \\u%04x", c, c)
		case c == '\n':
			line, column = line+1, 0
		}
		rest, column = rest[n:], column+1
	}
	return position{}, ""
}
