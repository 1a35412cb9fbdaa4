package lspconn

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/swansong-go/swansong/internal/proc"
)

const (
	maxStderr      = 8 << 10   // the maximum length of Report.Stderr
	searchedStderr = 128 << 10 // how many bytes are searched for the line that names the error, which Go and Java print before all stacks
)

// A stderrTail keeps the end of what a server has written to stderr.
type stderrTail struct {
	*proc.Tail

	mu    sync.Mutex
	total int64  // how many bytes of output had been read when the field end was last set
	end   string // the result that String returned last; String computes it again after new output
}

func newStderrTail() *stderrTail { return &stderrTail{Tail: proc.NewTail(searchedStderr)} }

// String returns the last complete lines, up to maxStderr bytes. If all of them belong to a stack
// trace, the line that names the error, and a line of three dots, precede them.
func (t *stderrTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Compute t.end again only if there is new output: when a connection has failed, the error of
	// each call contains the result of String.
	if total := t.Total(); total != t.total {
		t.end, t.total = endOfStderr(t.Tail.String()), total
	}
	return t.end
}

func endOfStderr(text string) string {
	if len(text) <= maxStderr {
		return text
	}
	end := text[len(text)-maxStderr:]
	if i := strings.IndexByte(end, '\n'); i >= 0 && i+1 < len(end) {
		end = end[i+1:]
	}
	if _, ok := lastLine(strings.Split(colour.ReplaceAllString(end, ""), "\n"), namesError); ok {
		return end
	}
	return errorLine(text) + "\n...\n" + end
}

// errorLine returns the line of a server's stderr that most likely says why the server has ended:
// the last one that is neither part of a stack trace nor advice. If this line is a log entry that
// reports no failure, errorLine returns the last log entry that reports one, if there is one. There
// are two exceptions. When Node has crashed, errorLine returns the first line of the error, which
// can have several. When Go's package flag has refused the arguments, errorLine returns the error
// that precedes the usage, unless a log entry or a panic follows. errorLine returns at most 500
// bytes, without colours.
func errorLine(stderr string) string {
	text := strings.TrimRight(colour.ReplaceAllString(stderr, ""), " \t\r\n")
	if strings.Contains(text, "Exception Group Traceback") {
		text = groupMargin.ReplaceAllString(text, "")
	}
	lines := strings.Split(text, "\n")
	found, ok := firstOfNodeError(lines)
	if !ok {
		found, ok = lastLine(lines, func(line string) bool { return flagError.MatchString(line) || runsOn.MatchString(line) })
		ok = ok && !runsOn.MatchString(found)
	}
	if !ok {
		found, ok = lastLine(lines, namesError)
	}
	if !ok {
		found = lines[len(lines)-1]
	}
	if infoLine.MatchString(found) { // the line reports no failure, but an earlier line may report one
		if failure, ok := lastLine(lines, failureLine.MatchString); ok {
			found = failure
		}
	}
	found = strings.TrimSpace(found)
	return found[:min(len(found), 500)]
}

// lastLine returns the last line that is not empty and for which the function wanted returns true.
func lastLine(lines []string, wanted func(line string) bool) (string, bool) {
	for _, line := range slices.Backward(lines) {
		if strings.TrimSpace(line) != "" && wanted(line) {
			return line, true
		}
	}
	return "", false
}

// infoLine matches log lines of a server that report no failure, and failureLine those that report
// one. Both know two formats: that of clangd, I[12:00:00.000] and E[12:00:00.000], and that of most
// logging libraries, with a level in capitals.
var (
	infoLine    = regexp.MustCompile(`^[IV]\[\d|^.{0,60}\b(INFO|DEBUG|TRACE)\b`)
	failureLine = regexp.MustCompile(`^E\[\d|^.{0,60}\b(ERROR|FATAL|CRITICAL)\b`)
)

// colour matches the escape sequences that set the colour of a text on a terminal.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// namesError reports whether a line may name an error: it is neither part of a stack trace nor
// advice.
func namesError(line string) bool {
	return !traceLine.MatchString(line) && !adviceLine.MatchString(line)
}

// traceLine matches the lines that Node, Go, Python, Rust and Java print after an error.
var traceLine = regexp.MustCompile("^(" + strings.Join([]string{
	`\s`, `\}`, `- `, `-----`, `\.\.\.`, // an indented line, the end of a multi-line value, a list item, a rule, and dots for lines left out
	`Node\.js v`, `Require stack:`, `[sS]tack backtrace:`, // lines that Node and Rust print
	`goroutine \d`, `created by `, `\[originating from `, `runtime stack:`, `\[signal `, `PC=0x`, `exit status \d`, // lines that Go prints
	`[\pL\w./*()\[\]%~+-]+\(.*\)\r?$`, // a function in a stack of Go; % escapes a dot in the last element of its package path
	// A register in the output of a Go program that has crashed, such as "rax    0x0". Names such
	// as eflags are followed by one space, all others by more, so "error 0x80070005" does not
	// match.
	`([a-z]\w*\s\s+|(s1\d|link|cpsr|trap|oldmask|[er]flags) )0x[0-9a-f]+\r?$`,
}, "|") + ")")

// groupMargin matches what Python prints before each line about the exceptions of an exception
// group.
var groupMargin = regexp.MustCompile(`(?m)^ +\| `)

// flagError matches the errors of package flag of Go, behind which the program prints its usage.
var flagError = regexp.MustCompile(`^(flag provided but not defined|flag needs an argument|bad flag syntax): |^invalid (boolean )?value ".*" for (flag )?-`)

// runsOn matches lines that no usage contains: log entries, and the panics of Go. If such a line
// follows an error of package flag, the server has run on after that error. So another program has
// printed the error, such as a tool that the server has started.
var runsOn = regexp.MustCompile(`^\d{4}[/-]\d\d[/-]\d\d[ T]|^(panic|fatal error|SIG[A-Z]+): `)

// adviceLine matches what command-line parsers, such as clap in servers written in Rust, and
// servers print after an error: what to do instead, and where to read more.
var adviceLine = regexp.MustCompile(`^([Uu]sage|[Hh]elp|[Hh]int|[Tt]ip|[Nn]ote|See also): |^For more information|: Did you mean `)

// firstOfNodeError returns the first line of the error with which Node has ended. Node prints the
// source line, a line that marks the position with carets, an empty line, the error, and its
// version.
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
