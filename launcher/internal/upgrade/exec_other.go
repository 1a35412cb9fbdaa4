//go:build !linux

package upgrade

import (
	"errors"
	"os"
)

var errUnsupported = errors.New("a launcher can be upgraded in place on Linux only; stop it and start the new program")

// Exec always fails on this system.
func (h *Handoff) Exec(string, Open, Signals) error { return errUnsupported }

// A Taken is always nil on this system.
type Taken struct {
	*Handoff
	Failed string
	files  map[int]*os.File
}

// Take returns nil, because on this system no program can hand over a launcher.
func Take(string) (*Taken, error) { return nil, nil }

// GoBack returns err on this system.
func GoBack(err error) error { return err }

// GoBack returns err on this system.
func (t *Taken) GoBack(err error) error { return err }

// Done does nothing, because this system supports no upgrade.
func (t *Taken) Done(<-chan struct{}) {}

func (t *Taken) use(fd int) *os.File { return t.files[fd] }
