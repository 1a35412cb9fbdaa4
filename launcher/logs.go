package launcher

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/capture"
)

// logPatience is how long a disk may take for the last lines.
const logPatience = time.Second

// A logFiles has the files that processes print to, each of them open once and for as long as somebody prints to it.
type logFiles struct {
	mu     sync.Mutex
	files  map[string]*logFile        // by path
	counts map[string]*capture.Counts // by group
	output *capture.File              // for who has no file; nil: nowhere
	failed func(error)

	removing sync.WaitGroup
}

type logFile struct {
	*capture.File
	users int
}

// outputBuffer is what is held for a slow output.
const outputBuffer = 1 << 20

func newLogFiles(output io.Writer, failed func(error)) *logFiles {
	l := &logFiles{files: map[string]*logFile{}, counts: map[string]*capture.Counts{}, failed: failed}
	if output != nil {
		l.output = capture.To(guarded(output), outputBuffer, failed)
	}
	return l
}

// file is where a process prints to; empty: nowhere of its own.
func (c LogConfig) file(id string) string {
	if c.Dir != "" {
		return filepath.Join(c.Dir, id+".log")
	}
	return c.Path
}

// checkLog says early, and by field, what would be lost later. It waits for the disk.
func (g GroupConfig) checkLog() error {
	if g.Log.Dir != "" {
		if err := os.MkdirAll(g.Log.Dir, 0o700); err != nil {
			return &ConfigError{g.Name, "Log.Dir", err.Error()}
		}
	} else if g.Log.Path != "" {
		if err := capture.Check(g.Log.Path); err != nil {
			return &ConfigError{g.Name, "Log.Path", err.Error()}
		}
	}
	return nil
}

// open returns where to print, and what to call when there is nothing more to print; nil: nowhere. It does not wait for the
// disk: there is one lock for all files.
func (l *logFiles) open(c LogConfig, id string) (_ *capture.File, done func()) {
	path := c.file(id)
	if path == "" {
		return l.output, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.files[path]
	if f == nil {
		f = &logFile{File: capture.Open(path, c.MaxSize, max(0, c.MaxFiles), c.Buffer, l.failed)}
		l.files[path] = f
	}
	f.users++
	return f.File, func() {
		l.mu.Lock()
		f.users--
		last := f.users == 0
		if last {
			delete(l.files, path)
		}
		l.mu.Unlock()
		if last {
			f.Close(logPatience)
		}
	}
}

// remove removes the files of a process that is remembered no more, if it has had some of its own. It waits for no disk.
func (l *logFiles) remove(p *process) {
	c := p.cfg.Log
	if c.Dir == "" {
		return
	}
	l.removing.Go(func() {
		<-p.over // it has ended, and by now its output, too
		capture.Remove(c.file(p.id), max(0, c.MaxFiles))
	})
}

// counted returns what counts the lines of a group.
func (l *logFiles) counted(group string) *capture.Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[group] == nil {
		l.counts[group] = &capture.Counts{}
	}
	return l.counts[group]
}

func (l *logFiles) close() {
	if l.output != nil {
		l.output.Close(logPatience)
	}
	removed := make(chan struct{})
	go func() { l.removing.Wait(); close(removed) }()
	select {
	case <-removed:
	case <-time.After(logPatience):
	}
}

// copyOutput reads what the process prints, to its end: whatever becomes of it, nothing blocks the process.
func (p *process) copyOutput(stream string, r io.Reader) {
	m := p.manager
	to, done := m.logs.open(p.cfg.Log, p.id)
	defer done()
	counts := m.logs.counted(p.group)
	capture.Lines(r, p.cfg.Log.MaxLine, func(line []byte) {
		text := m.redact(string(line))
		m.printed.print(Line{Time: time.Now(), Group: p.group, Process: p.id, Stream: stream, Text: text})
		if to != nil {
			to.Line(p.id+" "+stream, text, counts)
		}
	})
}
