package launcher

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/spec"
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
	lines, more, stop = m.recentLines.Subscribe(name, last)
	return lines, more, stop, nil
}

// copyOutput reads what the process prints to one of its streams, until it ends. The process is
// never blocked, whatever happens to the log.
func (p *process) copyOutput(stream string, r io.Reader) {
	m := p.manager
	p.owner.logs.RemoveOld(p.cfg.Log)
	log, done := m.logs.Open(p.cfg.Log, p.id)
	defer done()
	counts := m.logs.Counts(p.group)
	output.ReadLines(r, p.cfg.Log.MaxLine, p.masker, func(text string) {
		m.recentLines.Add(Line{Time: time.Now(), Group: p.group, Process: p.id, Stream: stream, Text: text})
		if log != nil {
			log.WriteLine(p.id+" "+stream, text, counts)
		}
	})
}

// masker returns what masks the output of the process.
func (p *process) masker() *mask.Masker {
	if p.config().Unmasked {
		return nil
	}
	return p.manager.secrets.Masker()
}

// checkLog reports whether the log files of a group can be written, so that the error names the
// field. It waits for the disk.
func checkLog(g spec.Group) error {
	if g.Log.Dir != "" {
		if err := os.MkdirAll(g.Log.Dir, 0o700); err != nil {
			return &ConfigError{g.Name, "Log.Dir", err.Error()}
		}
	} else if g.Log.Path != "" {
		if err := output.Check(g.Log.Path); err != nil {
			return &ConfigError{g.Name, "Log.Path", err.Error()}
		}
	}
	return nil
}
