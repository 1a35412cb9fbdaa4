package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A testCommand is the test that a mutant names. Mutants with the same testCommand share the
// run that shows that the test passes without them.
type testCommand struct {
	pkg, run, flags string // pkg is the folder of the package, relative to the root, such as ./eventloop
}

// A mutant is one entry of a table: a way to break the code, and the test that must notice.
type mutant struct {
	name   string
	reason string // what is broken, in one line
	testCommand
	count   int           // how often to run the test, until it fails
	timeout time.Duration // limit for all runs together
	table   string        // base name of the table's file
	line    int           // line of the table on which the entry starts
	dir     string        // folder of the package that is broken, relative to the root
	edits   []edit

	overlay string   // folder that holds the changed copies of the files
	files   []string // names of the changed files, relative to the root; their copies have the same names relative to overlay
	shared  bool     // the mutant is built into the test program that many mutants share
	decided *outcome // result of a mutant that cannot be tried; nil if it can
}

// An edit replaces lines of one declaration.
type edit struct {
	line  int    // number of the line, in the file of the table, on which the edit starts
	place string // where to look: "func (*T).Name", "type T", "const C", "var V" or "file name"
	lines []editLine
}

// An editLine is a line of code that stays (mark ' '), is removed ('-') or is added ('+').
type editLine struct {
	mark byte
	codeLine
}

// old returns the lines that an edit looks for, each after a line break.
func (e edit) old() string {
	var old strings.Builder
	for _, l := range e.lines {
		if l.mark != '+' {
			old.WriteString("\n" + l.text)
		}
	}
	return old.String()
}

// where returns the position of a line in the table, to begin an error message with.
func (m *mutant) where(line int) string { return fmt.Sprintf("%s:%d: %s", m.table, line, m.name) }

// readTables reads all tables of a folder. Names must be unique across them.
func readTables(dir string) ([]*mutant, error) {
	tables, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []*mutant
	var errs []error
	first := map[string]*mutant{}
	for _, table := range tables {
		text, err := os.ReadFile(table)
		if err != nil {
			return nil, err
		}
		mutants, err := parseTable(filepath.Base(table), string(text))
		errs = append(errs, err)
		for _, m := range mutants {
			if other := first[m.name]; other != nil {
				errs = append(errs, fmt.Errorf("%s: %s:%d has the same name; rename one of them", m.where(m.line), other.table, other.line))
			} else {
				first[m.name] = m
			}
		}
		all = append(all, mutants...)
	}
	return all, errors.Join(errs...)
}

// parseTable parses a table. Its grammar is described in testdata/mutants/README.md. The error that
// it returns lists all mistakes in the table.
func parseTable(table, text string) ([]*mutant, error) {
	p := tableParser{table: table}
	for line := range strings.Lines(text) {
		p.number++
		if err := p.parseLine(strings.TrimRight(line, "\r\n")); err != nil {
			p.errorf(p.number, "%w", err)
		}
	}
	p.endEntry()
	return p.mutants, errors.Join(p.errs...)
}

type tableParser struct {
	table   string
	number  int    // number of the current line
	dir     string // folder of the package, from the line "package:"
	mutants []*mutant
	errs    []error

	m    *mutant // the current entry; nil above the first entry
	edit *edit   // the current edit; nil before the first line "in:" of the current entry
}

func (p *tableParser) errorf(line int, format string, args ...any) {
	name := ""
	if p.m != nil {
		name = p.m.name + ": "
	}
	p.errs = append(p.errs, fmt.Errorf("%s:%d: %s%w", p.table, line, name, fmt.Errorf(format, args...)))
}

func (p *tableParser) parseLine(line string) error {
	switch {
	case line == "":
		return nil
	case p.edit != nil && strings.ContainsRune("-+ ", rune(line[0])):
		p.edit.lines = append(p.edit.lines, editLine{line[0], codeLines(line[1:], true)[0]})
		return nil
	case line[0] == '#':
		if p.m != nil && p.edit == nil && p.m.reason == "" {
			p.m.reason = strings.TrimSpace(line[1:])
		}
		return nil
	}
	key, value, found := strings.Cut(line, ":")
	if value = strings.TrimSpace(value); !found || value == "" {
		return fmt.Errorf("cannot read %q; a line is \"key: value\" or a # comment; below \"in:\" it can also start with -, + or a space", line)
	}
	switch {
	case key == "package" && p.dir == "":
		p.dir = filepath.FromSlash(strings.TrimPrefix(value, "./"))
		return nil
	case key == "package":
		return errors.New("a table is about one package; put the entries of another one into a table of their own")
	case p.dir == "":
		return errors.New("the table must begin with package: ./folder")
	case key == "mutant":
		p.endEntry()
		p.m = &mutant{name: value, count: 1, timeout: time.Minute, table: p.table, line: p.number, dir: p.dir}
		if strings.ContainsAny(value, " \t/*?[") {
			return errors.New("a name is one word, without /, *, ? and [")
		}
		return nil
	case p.m == nil:
		return fmt.Errorf("%q stands outside an entry; put it below a line that begins with \"mutant:\"", line)
	}
	return p.parseField(key, value)
}

// parseField handles the fields of an entry.
func (p *tableParser) parseField(key, value string) (err error) {
	switch key {
	case "test":
		p.m.pkg, p.m.run = "./"+filepath.ToSlash(p.dir), value
		if strings.HasPrefix(value, "./") {
			p.m.pkg, p.m.run, _ = strings.Cut(value, " ")
		}
	case "flags":
		if p.m.flags = value; strings.Contains(value, "-count") {
			return errors.New("flags has -count; write it on a line of its own, such as count: 20")
		}
	case "count":
		if p.m.count, err = strconv.Atoi(value); err != nil || p.m.count < 1 {
			return fmt.Errorf("count is %q; it must be a number of runs, at least 1", value)
		}
	case "timeout":
		p.m.timeout, err = time.ParseDuration(value)
	case "in":
		p.endEdit()
		p.edit = &edit{line: p.number, place: value}
		if kind, _, ok := strings.Cut(value, " "); !ok || !slices.Contains([]string{"func", "type", "const", "var", "file"}, kind) {
			return fmt.Errorf("cannot read %q; the key in takes one of: func Name, func (*T).Name, type T, const C, var V, file name", value)
		}
	default:
		return fmt.Errorf("unknown key %q; an entry has test, flags, count, timeout and in", key)
	}
	return err
}

func (p *tableParser) endEdit() {
	e := p.edit
	if p.edit = nil; e == nil {
		return
	}
	has := map[byte]bool{}
	for _, l := range e.lines {
		has[l.mark] = has[l.mark] || l.code != ""
	}
	switch {
	case !has['-'] && !has['+']:
		p.errorf(e.line, "the edit changes nothing; mark lines to remove with -, and lines to add with +")
	case !has['-'] && !has[' ']:
		p.errorf(e.line, "the edit does not say where to add lines; write the line before or after, with a space in front")
	default:
		p.m.edits = append(p.m.edits, *e)
	}
}

func (p *tableParser) endEntry() {
	if p.m == nil {
		return
	}
	bad := len(p.errs)
	p.endEdit()
	switch m := p.m; {
	case m.reason == "":
		p.errorf(m.line, "the entry has no reason; add a line with # that says what the mutant breaks")
	case m.run == "":
		p.errorf(m.line, "the entry has no test; add test: ^TestName$, or test: ./folder ^TestName$")
	case len(m.edits) == 0 && len(p.errs) == bad:
		p.errorf(m.line, "the entry has no edit; add in: func Name, and lines that start with - and +")
	}
	p.mutants = append(p.mutants, p.m)
	p.m = nil
}
