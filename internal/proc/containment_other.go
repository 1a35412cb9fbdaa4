//go:build !linux

package proc

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// NewContainment returns an empty containment on this system.
func NewContainment() Containment { return Containment{} }

// Make does nothing on this system.
func (Containment) Make() {}

func (Containment) empty(time.Time) []Member { return nil }

// Leader always returns false on this system.
func (Containment) Leader() (Adoptable, bool) { return Adoptable{}, false }

// Children always returns nil on this system.
func Children() []Adoptable { return nil }

// EndStrays does nothing on this system.
func (Containment) EndStrays(_, _ []Adoptable, _ time.Time) {}

// Self always returns an empty Adoptable on this system.
func Self() Adoptable { return Adoptable{} }

// Alive always returns false on this system.
func (Adoptable) Alive() bool { return false }

// Cgroups always returns nil on this system.
func Cgroups() []string { return nil }

// Boot always returns "" on this system.
func Boot() string { return "" }

func adoptContained(Adoptable, bool) (*container, error) { return nil, errors.ErrUnsupported }

func (c *container) born() uint64 { return 0 }

func (c *container) containment() Containment { return Containment{} }

// isAlive returns false: on this system members cannot be listed, so there are none.
func (Member) isAlive() bool { return false }

// signal and the methods below it do nothing: on this system members cannot be listed, so there are
// none.
func (Member) signal(syscall.Signal)                     {}
func (Member) await(time.Time)                           {}
func (Member) refusesSignals() bool                      { return false }
func (Member) pidfd() *os.File                           { return nil }
func (*Exit) set(syscall.WaitStatus)                     {}
func exitStatus(*os.File) (_ syscall.WaitStatus, _ bool) { return }
