package shutdowntest

import (
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// A goroutine is identified by the numbers at the beginning of its stack trace. The runtime offers
// no other way to find out what goroutines are doing.
type goroutine struct{ id, bubble string }

// header matches the first line of a stack trace, such as "goroutine 7 [chan receive (durable),
// synctest bubble 1]:".
var header = regexp.MustCompile(`^goroutine (\d+) .*?\[(.*?)(?:, synctest bubble (\d+))?\]:\n`)

// self returns the calling goroutine.
func self() goroutine {
	buf := make([]byte, 256)
	m := header.FindSubmatch(buf[:runtime.Stack(buf, false)])
	return goroutine{id: string(m[1]), bubble: string(m[3])}
}

// traces returns the stack traces of all goroutines. The first one is that of the calling
// goroutine.
func traces() []string {
	for size := 1 << 16; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size > 1<<26 {
			return strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n")
		}
	}
}

// others returns the stack traces of the goroutines in the synctest bubble of g. It leaves out the
// goroutines that every bubble has, and g if it is reporting a failure.
func (g goroutine) others() string {
	return strings.Join(slices.DeleteFunc(traces(), func(trace string) bool {
		m := header.FindStringSubmatch(trace)
		return m == nil || m[3] != g.bubble || strings.Contains(trace, "synctest.testingSynctestTest(") ||
			strings.Contains(trace, "internal/synctest.Run(") || m[1] == g.id && strings.Contains(trace, "shutdowntest.(*run).fail(")
	}), "\n\n")
}

// anyRunning reports whether one of the goroutines is not blocked. It ignores the calling
// goroutine.
func anyRunning(gs ...goroutine) bool {
	for _, trace := range traces()[1:] {
		m := header.FindStringSubmatch(trace)
		if m == nil || !slices.ContainsFunc(gs, func(g goroutine) bool { return g.id == m[1] }) {
			continue
		}
		// A goroutine that waits for the runtime does not count as blocked. A goroutine in the
		// method reach of a run does not count as blocked either, because it waits only while
		// stacks are read.
		if !blocked.MatchString(m[2]) || strings.Contains(trace, "shutdowntest.(*run).reach(") {
			return true
		}
	}
	return false
}

var blocked = regexp.MustCompile(`^(chan|select|sleep|sync|IO wait)`)
