package lspconn

import (
	"regexp"
	"strings"
)

// errorLine returns the line of a server's stderr that most likely says why the server has ended: the
// last one that is neither part of a stack trace nor advice. For a crash of Node it is the first line of the error,
// which can have several. It returns at most 500 bytes, without colours.
func errorLine(stderr string) string {
	lines := strings.Split(strings.TrimRight(colour.ReplaceAllString(stderr, ""), " \t\r\n"), "\n")
	found := lines[len(lines)-1]
	if first, ok := firstOfNodeError(lines); ok {
		found = first
	} else {
		for i := len(lines) - 1; i >= 0; i-- {
			if strings.TrimSpace(lines[i]) != "" && !traceLine.MatchString(lines[i]) && !adviceLine.MatchString(lines[i]) {
				found = lines[i]
				break
			}
		}
	}
	found = strings.TrimSpace(found)
	return found[:min(len(found), 500)]
}

// colour matches the escape sequences that set the colour of a text on a terminal.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// traceLine matches the lines that Node, Go, Python, Rust and Java print after an error: indented
// lines, function calls, goroutines, registers and versions.
var traceLine = regexp.MustCompile(`^(\s|\}|- |-----|Node\.js v|Require stack:|goroutine \d|created by |exit status \d|\[signal |[sS]tack backtrace:|r\w+\s+0x|[\w./*()\[\]-]+\(.*\)\r?$)`)

// adviceLine matches what command-line parsers, such as clap in servers written in Rust, and servers
// print after an error: what to do instead, and where to read more.
var adviceLine = regexp.MustCompile(`^([Uu]sage|[Hh]elp|[Hh]int|[Tt]ip|[Nn]ote|See also): |^For more information|: Did you mean `)

// firstOfNodeError returns the first line of the error with which Node has ended. Node prints the
// source line, a line that marks the position with carets, an empty line, the error, and its version.
func firstOfNodeError(lines []string) (string, bool) {
	if !strings.HasPrefix(lines[len(lines)-1], "Node.js v") {
		return "", false
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if mark := strings.TrimSpace(lines[i]); mark == "" || strings.Trim(mark, "^") != "" {
			continue
		}
		for _, line := range lines[i+1:] {
			if strings.TrimSpace(line) != "" {
				return line, true
			}
		}
	}
	return "", false
}
