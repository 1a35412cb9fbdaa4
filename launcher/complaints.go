package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// complaintsIn returns where a guardian says what goes wrong: its stderr is nobody's, since that of the launcher may be a pipe
// whose reader waits for its end. The next launcher reads it.
func complaintsIn(dir string) string { return filepath.Join(dir, "guardian.err") }

// complain says something there, and on stderr. Who has nobody else to tell drops its error.
func complain(dir, text string) error {
	fmt.Fprintln(os.Stderr, text)
	f, err := os.OpenFile(complaintsIn(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.ReplaceAll(text, "\n", "; ") + "\n")
	return errors.Join(err, f.Close())
}

// complaints says of each failure of a log, once, what is lost.
type complaints struct {
	dir string

	mu   sync.Mutex
	said map[string]bool // false: a disk that has no room for the log may have none for this either
}

func newComplaints(dir string) *complaints { return &complaints{dir: dir, said: map[string]bool{}} }

func (c *complaints) add(err error) {
	text := fmt.Sprintf("launcher: some of what processes print is lost, which the guardian reads until there is a launcher: %v; "+
		"see to it that it can write there: it tries again with each line", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.said[text]; !again {
		c.said[text] = complain(c.dir, text) == nil
	}
}

// end says what could not be said, for the last time.
func (c *complaints) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text, said := range c.said {
		if !said {
			complain(c.dir, text)
		}
	}
}

// hear tells what guardians of earlier launchers have complained of.
func (m *Manager) hear() {
	path := complaintsIn(m.dir)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		text = []byte(err.Error())
	}
	for line := range strings.Lines(string(text)) {
		m.publish(Event{Kind: Alarm, Message: "while there was no launcher: " + strings.TrimSpace(line)})
	}
	os.Remove(path)
}
