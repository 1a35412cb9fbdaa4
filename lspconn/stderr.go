package lspconn

import (
	"regexp"
	"slices"
	"strings"
)

// errorLine returns the line of a server's stderr that most likely says why the server has ended:
// the last one that is neither part of a stack trace nor advice. If this line is a log entry that
// reports no failure, errorLine returns the last log entry that reports one, if there is one. For a
// crash of Node it is the first line of the error, which can have several. errorLine returns at
// most 500 bytes, without colours.
func errorLine(stderr string) string {
	lines := strings.Split(strings.TrimRight(colour.ReplaceAllString(stderr, ""), " \t\r\n"), "\n")
	found, ok := firstOfNodeError(lines)
	if !ok {
		found, ok = lastLine(lines, func(line string) bool { return !traceLine.MatchString(line) && !adviceLine.MatchString(line) })
	}
	if !ok {
		found = lines[len(lines)-1]
	}
	if infoLine.MatchString(found) { // the server may have logged more after the error
		if failure, ok := lastLine(lines, failureLine.MatchString); ok {
			found = failure
		}
	}
	found = strings.TrimSpace(found)
	return found[:min(len(found), 500)]
}

// lastLine returns the last line that is not empty and is wanted.
func lastLine(lines []string, wanted func(line string) bool) (string, bool) {
	for _, line := range slices.Backward(lines) {
		if strings.TrimSpace(line) != "" && wanted(line) {
			return line, true
		}
	}
	return "", false
}

// infoLine matches the entries of a log that report no failure, and failureLine those that do, as
// clangd writes them (I[12:00:00.000] and E[12:00:00.000]), and with a level in capitals, as most
// libraries for logging do.
var (
	infoLine    = regexp.MustCompile(`^[IV]\[\d|^.{0,60}\b(INFO|DEBUG|TRACE)\b`)
	failureLine = regexp.MustCompile(`^E\[\d|^.{0,60}\b(ERROR|FATAL|CRITICAL)\b`)
)

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
