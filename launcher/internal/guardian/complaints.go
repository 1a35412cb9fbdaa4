package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// complaintsPath returns the path of the file in which a guardian reports problems to the next
// launcher. The guardian cannot use the stderr of the launcher: stderr can be a pipe, and its
// reader would wait until the guardian has closed it, too.
func complaintsPath(dir string) string { return filepath.Join(dir, "guardian.err") }

// Complaints returns the problems that guardians of earlier launchers have reported, one in each
// line, and removes the file. If the file cannot be read, the only line is the reason, so that the
// launcher still reports that there were problems.
func Complaints(dir string) (lines []string) {
	path := complaintsPath(dir)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		text = []byte(err.Error())
	}
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	os.Remove(path)
	return lines
}

// complain reports a problem to the next launcher, and on stderr. The text becomes one line. If
// there is an error, the next launcher will not learn of the problem.
func complain(dir, text string) error {
	fmt.Fprintln(os.Stderr, text)
	f, err := os.OpenFile(complaintsPath(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.ReplaceAll(text, "\n", "; ") + "\n")
	return errors.Join(err, f.Close())
}

// A complaints value reports each error of a log once. A guardian can run for days, and a full disk
// would otherwise fill the file with equal lines. Its methods are called by the goroutines that
// write the logs.
type complaints struct {
	dir string

	mu       sync.Mutex
	reported map[string]bool // the reports by their text; the value is false if a report could not be written, for instance because the disk is full
}

func newComplaints(dir string) *complaints { return &complaints{dir: dir, reported: map[string]bool{}} }

func (c *complaints) add(err error) {
	text := fmt.Sprintf("launcher: the guardian, which reads the output of processes while no launcher runs, has lost some of it: %v; "+
		"make the log writable again: the guardian retries with each line", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.reported[text]; !known {
		c.reported[text] = complain(c.dir, text) == nil
	}
}

// retry writes the reports that could not be written before.
func (c *complaints) retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text, reported := range c.reported {
		if !reported {
			complain(c.dir, text)
		}
	}
}
