package shutdowntest

import (
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// A goroutine is one of a bubble, by the numbers that its stack trace begins with. There is no other way to tell what
// goroutines do: the runtime keeps that to itself.
type goroutine struct{ id, bubble string }

// A trace begins with "goroutine 7 [chan receive (durable), synctest bubble 1]:".
var header = regexp.MustCompile(`^goroutine (\d+) .*?\[(.*?)(?:, synctest bubble (\d+))?\]:\n`)

// self returns the calling goroutine.
func self() goroutine {
	buf := make([]byte, 256)
	m := header.FindSubmatch(buf[:runtime.Stack(buf, false)])
	return goroutine{id: string(m[1]), bubble: string(m[3])}
}

// traces returns the stack traces of all goroutines, the caller's first.
func traces() []string {
	for size := 1 << 16; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size > 1<<26 {
			return strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n")
		}
	}
}

// others returns the stack traces of the goroutines in g's bubble, without those that every bubble has.
func (g goroutine) others() string {
	return strings.Join(slices.DeleteFunc(traces(), func(trace string) bool {
		m := header.FindStringSubmatch(trace)
		return m == nil || m[3] != g.bubble || strings.Contains(trace, "synctest.testingSynctestTest(") ||
			strings.Contains(trace, "internal/synctest.Run(") || m[1] == g.id && strings.Contains(trace, "shutdowntest.(*run).fail(")
	}), "\n\n")
}

// onTheirWay reports whether one of these, other than the caller, is not waiting for anything.
func onTheirWay(gs ...goroutine) bool {
	for _, trace := range traces()[1:] {
		m := header.FindStringSubmatch(trace)
		if m == nil || !slices.ContainsFunc(gs, func(g goroutine) bool { return g.id == m[1] }) {
			continue
		}
		// Not what is waiting for the runtime, as everybody does now and then, or for a look like this one.
		if !waiting.MatchString(m[2]) || strings.Contains(trace, "shutdowntest.(*run).reach(") {
			return true
		}
	}
	return false
}

var waiting = regexp.MustCompile(`^(chan|select|sleep|sync|IO wait)`)
