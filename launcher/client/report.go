package client

import (
	"fmt"
	"strings"

	"github.com/swansong-go/swansong/internal/stacks"
)

// maxReport bounds a report in bytes. The launcher keeps one for each process that was ended
// lately.
const maxReport = 32 << 10

// report says what a drain waits for, and where the goroutines of the program are. It stops the
// program for a moment, so it is made only when the launcher is about to end the process.
func report(blockers []string) string {
	var b strings.Builder
	for _, what := range blockers {
		fmt.Fprintf(&b, "waits for %s\n", what)
	}
	left := 0
	for _, g := range stacks.All() {
		if !g.RunsProgram(stacks.ModulePath+"launcher/client.", stacks.ModulePath+"launcher/lifecyclepb.", "google.golang.org/", "golang.org/x/net/") {
			continue
		}
		var one strings.Builder
		g.Write(&one, "", nil)
		if b.Len()+one.Len() > maxReport-100 {
			left += g.Count
			continue
		}
		b.WriteString(one.String())
	}
	if left > 0 {
		fmt.Fprintf(&b, "and %d more\n", left)
	}
	return b.String()
}
