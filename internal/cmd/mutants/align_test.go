package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What comes after a change is in the same line as before, and means the same.
func TestAlign(t *testing.T) {
	const head, tail = "package p\n\nfunc f(a int) int {\n", "\treturn a\n}\n\nfunc g() {}\n"
	for _, test := range []struct{ name, before, after, want string }{
		{"a line for another", "\ta++\n", "\ta--\n", "\ta--\n"},
		{"one less", "\ta++\n\ta++\n", "\ta--\n", "\ta--\n\n"},
		{"gone", "\ta++\n", "", "\n"},
		{"one more", "\ta++\n", "\ta--\n\ta *= 2\n", "\ta--; \ta *= 2\n"},
		{"with a comment", "\ta++\n", "\ta-- // two // of them\n\ta *= 2 // and this\n", "\ta-- ; \ta *= 2 \n"},
		{"a block", "\ta++\n", "\tif a > 0 {\n\t\ta--\n\t}\n", "\tif a > 0 { \t\ta--; \t}\n"},
		{"a raw string is left alone", "\ta++\n", "\t_ = `x\n\ty`\n", "\t_ = `x\n\ty`\n"},
		{"nothing to join", "", "\ta--\n", "\ta--\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(head+test.want+tail, align(head+test.before+tail, head+test.after+tail)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
