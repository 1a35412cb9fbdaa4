package main

import (
	"go/scanner"
	"go/token"
	"slices"
	"strings"
)

// align lays a patched file out so that what follows the change stands in the same line as before: positions are part of
// what the compiler tells of a package to those who import it, and [runner.relink] hopes for no difference. Where the
// change has taken lines, blank ones follow it; where it has added some, its first ones are joined.
func align(before, after string) string {
	old, lines := strings.Split(before, "\n"), strings.Split(after, "\n")
	same := func(a, b []string) (n int) {
		for n < len(a) && n < len(b) && a[n] == b[n] {
			n++
		}
		return n
	}
	begin := same(old, lines)
	slices.Reverse(old)
	slices.Reverse(lines)
	rest := same(old[:len(old)-begin], lines[:len(lines)-begin])
	slices.Reverse(lines)
	end, more := len(lines)-rest, len(lines)-len(old)

	breaks, ok := lineBreaks(after, begin, end)
	switch {
	case !ok || more > end-begin-1:
		return after
	case more <= 0:
		return strings.Join(slices.Insert(lines, end, make([]string, -more)...), "\n")
	}
	var joined strings.Builder
	for i, line := range lines[begin : begin+more+1] {
		b := breaks[begin+i]
		joined.WriteString(line[:min(b.code, len(line))])
		if i < more {
			joined.WriteString(b.instead)
		}
	}
	return strings.Join(slices.Replace(lines, begin, begin+more+1, joined.String()), "\n")
}

// A lineBreak is the end of a line: how long the line is without a comment, and what means the same as its newline.
type lineBreak struct {
	code    int
	instead string
}

// lineBreaks returns those of the lines from begin to end, unless something that may not be cut there spans several of them.
func lineBreaks(text string, begin, end int) (breaks map[int]lineBreak, ok bool) {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, scanner.ScanComments)
	breaks = map[int]lineBreak{}
	for i := begin; i < end; i++ {
		breaks[i] = lineBreak{len(text), " "}
	}
	for {
		pos, tok, lit := s.Scan()
		at := file.Position(pos)
		line := at.Line - 1
		switch {
		case tok == token.EOF:
			return breaks, s.ErrorCount == 0
		case tok == token.SEMICOLON && lit == "\n":
			b := breaks[line]
			breaks[line] = lineBreak{b.code, "; "}
		case strings.Contains(lit, "\n") && line < end && line+strings.Count(lit, "\n") >= begin:
			return nil, false // a raw string, or a comment
		case tok == token.COMMENT && strings.HasPrefix(lit, "//"):
			breaks[line] = lineBreak{at.Column - 1, breaks[line].instead}
		}
	}
}
