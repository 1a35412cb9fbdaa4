package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Error is one thing that is wrong with a file.
type Error struct {
	File   string
	Line   int    // from 1; 0 where there is no line, as for a key that is missing from the whole file
	Column int    // from 1
	Key    string // as in process_groups[0].max_surge; empty for the file as a whole
	Rule   string // what is expected, what is there, what to do
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, max(e.Column, 1))
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	b.WriteString(": " + e.Rule)
	return b.String()
}

// Errors is all that is wrong with a file, from top to bottom: one line each.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for k, err := range e {
		lines[k] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each of them, for errors.As.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for k, err := range e {
		errs[k] = err
	}
	return errs
}

func (d *decoder) sorted() Errors {
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.errs
}
