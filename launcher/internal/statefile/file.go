package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/regular"
)

// An envelope is the outermost object of the file. The checksum detects a file that was damaged or
// edited: a wrong process id would make the launcher lose a process, or kill another one.
type envelope struct {
	Format  string          `json:"format"`
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // hash of State
	State   json.RawMessage `json:"state"`
}

const (
	format = "swansong launcher state"

	// Version grows when a field is added, or gets another key or another meaning, but only once
	// between two releases. If the file changes once more before the release, the version that the
	// guardian sends grows instead; see guarding in package guardian. A launcher reads its own
	// Version and the one before. Launchers built between two releases read only what launchers
	// built before them wrote.
	Version = 2
)

// An Error says that the state file of an earlier launcher cannot be used. The file is left
// unchanged.
type Error struct {
	Path    string
	Cause   error
	Damaged bool // the file was damaged; Recover can write a new one from the processes that it finds

	Found string // for a damaged file: the processes that can be adopted; empty if there are none
}

func (e *Error) Error() string {
	what := fmt.Sprintf("launcher: cannot use the state file %s: %v; the file is unchanged: ", e.Path, e.Cause)
	switch {
	case e.Found != "":
		return what + "restore an intact copy, or run launcher recover, which writes a new one with the processes that still run: " + e.Found
	case e.Damaged:
		return what + "restore an intact copy, or run launcher recover, which writes a new one; it finds no process of an earlier launcher"
	}
	return what + "restore the right one, or move it away to start without it. Then no launcher manages the processes that an earlier one left running, " +
		"and they have to be ended by hand: they have SWANSONG_DIR=" + filepath.Dir(e.Path) + " in their environment"
}

func (e *Error) Unwrap() error { return e.Cause }

// Read returns the state that an earlier launcher has written, and a zero State if there is none.
// An error is an [*Error]. A pipe is an error: to read it could wait without a limit.
func Read(path string) (s State, err error) {
	f, err := regular.Open(path, "")
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	var text []byte
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(f)
	}
	if err == nil {
		s, err = decode(text)
	}
	if err != nil {
		cause, damaged := err.(damage)
		if damaged {
			err = cause.error
		}
		return State{}, &Error{Path: path, Cause: err, Damaged: damaged}
	}
	return s, nil
}

// damage is the error of a file whose content is not what a launcher has written. A file of another
// version or format is not damaged: recover must not replace it, because another program can read
// it.
type damage struct{ error }

// SetAside renames a damaged state file, and returns its new path. The name has the time, so that a
// second damaged file does not replace the first.
func SetAside(path string) (aside string, err error) {
	aside = path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000Z")
	return aside, os.Rename(path, aside)
}

// decode reads the content of a state file. An unknown field is an error and not ignored: it would
// be something that the earlier launcher has done and that this one would not continue.
func decode(text []byte) (s State, err error) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return s, damage{fmt.Errorf("not valid JSON: %w", err)}
	}
	switch {
	case e.Format != format:
		return s, fmt.Errorf("unsupported format %q, want %q", e.Format, format)
	case e.Version != Version && e.Version != Version-1:
		return s, fmt.Errorf("unsupported version %d, want %d or %d; use the launcher that wrote it", e.Version, Version-1, Version)
	case e.SHA256 != checksum(e.State):
		return s, damage{errors.New("corrupt, or edited since it was written: checksum mismatch")}
	}
	return s, unmarshal(e.State, &s)
}

// temporary returns the path that a state file is written to before it is renamed to path.
func temporary(path string) string { return path + ".next" }

// Write replaces the state file. It writes a temporary file, syncs it, and renames it, so that path
// always has a complete file or none. The directory is not synced: if the machine crashes, the
// processes end as well, and an older file does no harm.
func Write(path string, s State) error {
	state, err := json.Marshal(s)
	if err != nil {
		return err
	}
	text, err := json.Marshal(envelope{format, Version, checksum(state), state})
	if err != nil {
		return err
	}
	next := temporary(path)
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		os.Remove(next)
	}
	return err
}

// Remove removes the state file, and the temporary file that an interrupted Write has left.
func Remove(path string) error {
	os.Remove(temporary(path))
	return os.Remove(path)
}
