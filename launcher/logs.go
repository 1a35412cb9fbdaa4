package launcher

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	left   map[*group]*leftLogs
	going  map[string]chan struct{} // files of earlier launchers that are being removed; closed when they are

	removing sync.WaitGroup
}

// leftLogs is what is kept of a group besides what those print that run.
type leftLogs struct {
	earlier []leftLog       // of processes of an earlier launcher, or of a group of this name, the oldest first
	ended   int             // processes that have ended, and are remembered
	dirs    map[string]bool // that were looked into
}

type leftLog struct {
	id    string
	path  string    // of that which it has printed to last
	last  time.Time // when it was written
	paths []string
}

type logFile struct {
	*capture.File
	users int
}

// outputBuffer is what is held for a slow output.
const outputBuffer = 1 << 20

func newLogFiles(output io.Writer, failed func(error)) *logFiles {
	l := &logFiles{files: map[string]*logFile{}, counts: map[string]*capture.Counts{}, failed: failed,
		left: map[*group]*leftLogs{}, going: map[string]chan struct{}{}}
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
		f = &logFile{File: capture.Open(path, c.MaxSize, max(0, c.MaxFiles), c.Buffer, l.failed, l.going[path])}
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
		l.mu.Lock()
		defer l.mu.Unlock()
		if left := l.left[p.owner]; left != nil {
			left.ended--
		}
	})
}

// look removes what is left of the processes of a group that an earlier launcher has had, but for the newest, as that would have done: the
// files would be more with each launcher. It looks once into each directory that processes of the group print to. It waits for no disk.
func (l *logFiles) look(g *group, c LogConfig) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Dir == "" || l.of(g).dirs[c.Dir] {
		return
	}
	left := l.of(g)
	left.dirs[c.Dir] = true
	l.removing.Go(func() {
		earlier := logsIn(os.DirFS(c.Dir), c.Dir, g.name)
		l.mu.Lock()
		left.earlier = append(left.earlier, earlier...)
		slices.SortStableFunc(left.earlier, func(a, b leftLog) int { return a.last.Compare(b.last) })
		l.mu.Unlock()
		l.trim(g, left)
	})
}

// of returns what is kept of a group, for who has l.mu.
func (l *logFiles) of(g *group) *leftLogs {
	if l.left[g] == nil {
		l.left[g] = &leftLogs{dirs: map[string]bool{}}
	}
	return l.left[g]
}

// logsIn returns the files in a directory that processes of a group have printed to. Other files are nobody's.
func logsIn(files fs.FS, dir, group string) (all []leftLog) {
	name := regexp.MustCompile("^(" + regexp.QuoteMeta(group) + `-[1-9][0-9]*)\.log(\.[1-9][0-9]*)?$`)
	entries, _ := fs.ReadDir(files, ".") // what cannot be read costs room
	at := map[string]int{}               // in all, by process: there may be many thousand
	for _, f := range entries {
		is := name.FindStringSubmatch(f.Name())
		if is == nil {
			continue
		}
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		i, known := at[is[1]]
		if !known {
			i = len(all)
			at[is[1]] = i
			all = append(all, leftLog{id: is[1], path: LogConfig{Dir: dir}.file(is[1])})
		}
		all[i].paths = append(all[i].paths, filepath.Join(dir, f.Name()))
		if info.ModTime().After(all[i].last) {
			all[i].last = info.ModTime()
		}
	}
	return all
}

// trim removes files of earlier processes until there are no more than are kept, with those that have ended since. What a process prints to
// that runs, or is remembered, is its own, whoever had the name before. One that starts while the file of its name is being removed waits
// for that to print, and nobody else does.
func (l *logFiles) trim(g *group, left *leftLogs) {
	ours := func(e leftLog) bool { return g.manager.printsTo(e.id, e.path) }
	l.mu.Lock()
	defer l.mu.Unlock()
	left.earlier = slices.DeleteFunc(left.earlier, ours) // once, and not for each that is removed: there may be many thousand
	for len(left.earlier) > 0 && len(left.earlier)+left.ended > recentKept {
		old := left.earlier[0]
		left.earlier = left.earlier[1:]
		if ours(old) { // it was started since
			continue
		}
		gone := make(chan struct{})
		l.going[old.path] = gone
		l.mu.Unlock()
		for _, p := range old.paths {
			os.Remove(p)
		}
		l.mu.Lock()
		delete(l.going, old.path)
		close(gone)
	}
}

// ended makes room for what a process has printed that has ended.
func (l *logFiles) ended(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.cfg.Log.Dir == "" {
		return
	}
	left := l.of(p.owner)
	left.ended++
	left.earlier = slices.DeleteFunc(left.earlier, func(e leftLog) bool { return e.path == p.cfg.Log.file(p.id) })
	if len(left.earlier) > 0 {
		l.removing.Go(func() { l.trim(p.owner, left) })
	}
}

// forget is for a group that is gone. Its files stay.
func (l *logFiles) forget(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.left, g)
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
	m.logs.look(p.owner, p.cfg.Log)
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
