package figures

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Origin returns the text with which a page of figures begins: the date, the processor and the
// number of processors, the platform and the Go version.
func Origin() string {
	return fmt.Sprintf("Measured %s on %s, %d processors, %s/%s, %s", time.Now().Format(time.DateOnly),
		Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// Processor returns the name of the processor.
func Processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for l := range strings.Lines(string(info)) {
			if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "model name" {
				return strings.TrimSpace(v)
			}
		}
	}
	return "an unnamed processor"
}
