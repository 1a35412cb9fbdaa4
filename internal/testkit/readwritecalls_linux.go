package testkit

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// ReadWriteCalls returns the number of read and write system calls that the calling thread makes
// during f. The kernel does not count a splice, and counts a sendfile or a copy_file_range as one
// read and one write.
func ReadWriteCalls(t testing.TB, f func()) int {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calls := func() (n int) {
		text, err := os.ReadFile("/proc/thread-self/io")
		if err != nil {
			t.Error(err) // Fatal must not be called here, because f may be called in a goroutine of a server
		}
		for line := range strings.Lines(string(text)) {
			var name string
			var value int
			if _, err := fmt.Sscanf(line, "%s %d", &name, &value); err == nil && (name == "syscr:" || name == "syscw:") {
				n += value
			}
		}
		return n
	}
	before := calls()
	f()
	return calls() - before
}
