package output

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// GroupLogs removes old log files of one group whose processes have a file each. It keeps the files
// of the processes that ended last, no matter which launcher ran them.
type GroupLogs struct {
	logs  *Logs
	group string
	keep  int
	inUse func(id, path string) bool

	// logs.mu guards the following fields.

	earlier []earlierLog    // files of processes that the launcher does not remember, the oldest first
	ended   int             // number of ended processes that the launcher remembers
	scanned map[string]bool // directories that have been searched for log files of earlier processes
}

// An earlierLog is the log of a process of an earlier launcher, or of an earlier group of the same
// name.
type earlierLog struct {
	id    string
	path  string    // the path of the current file, which is not a rotated one
	last  time.Time // when the file at path was last written
	paths []string  // path, and the paths of the rotated files
}

// Group returns the GroupLogs of a group that keeps the logs of at most keep ended processes. The
// function inUse reports whether any process that runs, or that the launcher remembers, has printed
// to a path.
func (l *Logs) Group(name string, keep int, inUse func(id, path string) bool) *GroupLogs {
	return &GroupLogs{logs: l, group: name, keep: keep, inUse: inUse, scanned: map[string]bool{}}
}

// RemoveOld removes the old log files in the directory that c names. It searches each directory
// only once. Without RemoveOld, the files of each launcher would be added to those of earlier ones.
// RemoveOld does not wait for the disk.
func (g *GroupLogs) RemoveOld(c spec.Log) {
	l := g.logs
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Dir == "" || g.scanned[c.Dir] {
		return
	}
	g.scanned[c.Dir] = true
	l.removals.Go(func() {
		earlier := scanLogs(os.DirFS(c.Dir), c.Dir, g.group)
		l.mu.Lock()
		g.earlier = append(g.earlier, earlier...)
		slices.SortStableFunc(g.earlier, func(a, b earlierLog) int { return a.last.Compare(b.last) })
		l.mu.Unlock()
		g.trim()
	})
}

// scanLogs returns the logs in a directory that have the names of processes of a group.
func scanLogs(files fs.FS, dir, group string) (all []earlierLog) {
	name := regexp.MustCompile("^(" + regexp.QuoteMeta(group) + `-[1-9][0-9]*)\.log(\.[1-9][0-9]*)?$`)
	entries, _ := fs.ReadDir(files, ".") // if this fails, no file is found and removed
	index := map[string]int{}            // for each process, the index of its log in all; a search in all would be slow, because there may be many thousands
	for _, f := range entries {
		match := name.FindStringSubmatch(f.Name())
		if match == nil {
			continue
		}
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		i, known := index[match[1]]
		if !known {
			i = len(all)
			index[match[1]] = i
			all = append(all, earlierLog{id: match[1], path: spec.Log{Dir: dir}.File(match[1])})
		}
		all[i].paths = append(all[i].paths, filepath.Join(dir, f.Name()))
		if info.ModTime().After(all[i].last) {
			all[i].last = info.ModTime()
		}
	}
	return all
}

// trim removes the oldest logs until the limit is kept. A log that is in use does not count as an
// old one, even if an earlier process with the same name began it. A process can start while the
// log of its name is being removed. That process waits for the removal before it opens the log; no
// other process waits.
func (g *GroupLogs) trim() {
	l := g.logs
	inUse := func(e earlierLog) bool { return g.inUse(e.id, e.path) }
	l.mu.Lock()
	defer l.mu.Unlock()
	g.earlier = slices.DeleteFunc(g.earlier, inUse) // removes the logs in use in one pass, because there may be many thousands
	for len(g.earlier) > 0 && len(g.earlier)+g.ended > g.keep {
		oldest := g.earlier[0]
		g.earlier = g.earlier[1:]
		// The log may belong to a process that was started after this loop began. Such a log is
		// not removed.
		if inUse(oldest) {
			continue
		}
		removed := make(chan struct{})
		l.removing[oldest.path] = removed
		l.mu.Unlock()
		for _, p := range oldest.paths {
			os.Remove(p)
		}
		l.mu.Lock()
		delete(l.removing, oldest.path)
		close(removed)
	}
}

// Ended counts the log of a process that has ended. If there are too many logs, it removes the
// oldest ones, but not the log of this process: the launcher still remembers the process, and calls
// Remove when it forgets the process.
func (g *GroupLogs) Ended(c spec.Log, id string) {
	l := g.logs
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Dir == "" {
		return
	}
	g.ended++
	g.earlier = slices.DeleteFunc(g.earlier, func(e earlierLog) bool { return e.path == c.File(id) })
	if len(g.earlier) > 0 {
		l.removals.Go(g.trim)
	}
}

// Remove removes the log of a process that the launcher no longer remembers, when the channel
// printed is closed: from then on the process prints nothing more. It does nothing if the process
// has no log file of its own. Remove does not wait for the disk.
func (g *GroupLogs) Remove(c spec.Log, id string, printed <-chan struct{}) {
	if c.Dir == "" {
		return
	}
	l := g.logs
	l.removals.Go(func() {
		<-printed
		Remove(c.File(id), max(0, c.MaxFiles))
		l.mu.Lock()
		defer l.mu.Unlock()
		g.ended--
	})
}
