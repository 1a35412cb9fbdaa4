package process

import (
	"io"
	"time"

	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/launcher/internal/output"
)

// copyOutput reads what the process prints to one of its streams, until it ends. The process is
// never blocked, whatever happens to the log.
func (p *Process) copyOutput(stream string, r io.Reader) {
	p.group.GroupLogs.RemoveOld(p.cfg.Log)
	log, done := p.group.Logs.Open(p.cfg.Log, p.id)
	defer done()
	counts := p.group.Logs.Counts(p.group.Name)
	output.ReadLines(r, p.cfg.Log.MaxLine, p.masker, func(text string) {
		p.group.RecentLines.Add(output.Line{Time: time.Now(), Group: p.group.Name, Process: p.id, Stream: stream, Text: text})
		if log != nil {
			log.WriteLine(p.id+" "+stream, text, counts)
		}
	})
}

// masker returns the Masker for the output of the process, nil if the output is not masked.
func (p *Process) masker() *mask.Masker {
	if p.Config().Unmasked {
		return nil
	}
	return p.group.Secrets.Masker()
}

// PrintsTo reports whether the process prints to a file of its own at this path.
func (p *Process) PrintsTo(path string) bool { return p.cfg.Log.File(p.id) == path }

// ForgetLines forgets the lines that the process has printed, except for those in log files.
func (p *Process) ForgetLines() { p.group.RecentLines.Forget(p.id) }

// RemoveLogs removes the log files of the process, if it has files of its own. It waits in the
// background until the channel of Ended is closed.
func (p *Process) RemoveLogs() { p.group.GroupLogs.Remove(p.cfg.Log, p.id, p.ended) }
