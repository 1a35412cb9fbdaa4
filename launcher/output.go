package launcher

import (
	"fmt"

	"github.com/swansong-go/swansong/launcher/internal/output"
)

// Line is a line that a process has printed:
//
//	Time           time.Time
//	Group, Process string
//	Stream         string // "out" or "err"
//	Text           string
//	Missed         int // lines that this reader missed before this one, because it was too slow
type Line = output.Line

// Printed returns the last lines of a process, of all processes of a group, or, without a name, of
// all processes. The launcher keeps 1,000 lines and 64 KiB of each process, also for a while after
// it has ended. The channel more has the lines to come, until the caller calls stop or the manager
// ends. A caller that reads too slowly misses lines; [Line].Missed says how many. The error matches
// [ErrNotFound].
func (m *Manager) Printed(name string, last int) (lines []Line, more <-chan Line, stop func(), err error) {
	if name != "" {
		if _, err := m.group(name); err != nil {
			if _, err := m.process(name); err != nil {
				return nil, nil, nil, fmt.Errorf("%w: neither a group nor a process has the name %q", ErrNotFound, name)
			}
		}
	}
	lines, more, stop = m.host.RecentLines.Subscribe(name, last)
	return lines, more, stop, nil
}
