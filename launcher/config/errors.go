package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Error is one error in a file.
type Error struct {
	File   string
	Line   int    // the first line is 1; 0 if the error concerns the file as a whole
	Column int    // the first column is 1
	Key    string // for example process_groups[0].max_surge; empty if the error does not concern a key
	Rule   string // the text of the error: what is expected, what was found, and what to do
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

// Errors contains all errors of a file, in the order of their lines. Its text has one line for each
// error.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for k, err := range e {
		lines[k] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors, each an [*Error].
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
