package output

import (
	"fmt"
	"testing"
	"testing/fstest"
)

// The time to remove old logs is linear in their number. If each log were compared with all others,
// a directory with many thousands would take minutes, and a process that starts would wait for
// that.
func TestTrim_RemovesManyLogsInLinearTime(t *testing.T) {
	const many, keep = 100_000, 32
	files := fstest.MapFS{}
	for n := range many {
		files[fmt.Sprintf("web-%d.log", n+1)] = &fstest.MapFile{}
	}
	const dir = "/dev/null/logs" // no file can exist at this path, so removals fail
	checks := 0
	g := NewLogs(nil, nil).Group("web", keep, func(string, string) bool {
		// trim checks all logs once, and each log again just before it removes it.
		if checks++; checks > 2*many {
			t.Fatalf("trim made more than %d checks for %d logs", 2*many, many)
		}
		return false
	})
	g.earlier = scanLogs(files, dir, "web")
	if len(g.earlier) != many {
		t.Errorf("found %d logs, want %d", len(g.earlier), many)
	}
	g.trim()
	if len(g.earlier) != keep {
		t.Errorf("kept %d logs, want %d", len(g.earlier), keep)
	}
}
