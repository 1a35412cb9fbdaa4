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

// complain says something there, and on stderr.
func complain(dir, text string) error {
	fmt.Fprintln(os.Stderr, text)
	f, err := os.OpenFile(complaintsIn(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.ReplaceAll(text, "\n", "; ") + "\n")
	return errors.Join(err, f.Close())
}

// complainOnce returns what says of each failure of a log, once, what is lost.
func complainOnce(dir string) func(error) {
	var told sync.Map
	return func(err error) {
		if _, again := told.LoadOrStore(err.Error(), true); again {
			return
		}
		if complain(dir, fmt.Sprintf("launcher: some of what processes print is lost, which the guardian reads until there is a launcher: %v; "+
			"see to it that it can write there: it tries again with each line", err)) != nil {
			told.Delete(err.Error()) // the disk that has no room for the log may have none for this; next time, it may
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
