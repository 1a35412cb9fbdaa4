package stacks

import (
	"path/filepath"
	"runtime"
	"strconv"
)

// A Site has the return addresses of the innermost stack frames of a call, as from runtime.Callers.
// The array is long enough to include the function that called this module, even if it called
// httpdrain.ListenAndServe, which calls several others. Only a report turns them into a file and a
// line.
type Site [8]uintptr

// String returns "file.go:12" for the first frame for which [IsLibrary] is false. If there is none,
// because a package of this module has started the goroutine, it names the outermost frame.
func (at Site) String() string {
	n := 0
	for n < len(at) && at[n] != 0 {
		n++
	}
	frames := runtime.CallersFrames(at[:n])
	line := ""
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if f.Function == "runtime.goexit" {
			break
		}
		line = filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		if !IsLibrary(f.Function) {
			break
		}
	}
	return line
}
