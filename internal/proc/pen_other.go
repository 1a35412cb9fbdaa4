//go:build !linux

package proc

import (
	"errors"
	"time"
)

// NewPen names a pen, of which nothing can be found again.
func NewPen() Pen { return Pen{} }

// Make makes nothing.
func (Pen) Make() {}

func (Pen) empty(time.Time) []Member { return nil }

// Leader returns false.
func (Pen) Leader() (Kept, bool) { return Kept{}, false }

// Alive returns false.
func (Kept) Alive() bool { return false }

// Boot returns nothing.
func Boot() string { return "" }

func adoptContained(Kept) (*container, error) { return nil, errors.ErrUnsupported }

func (c *container) born() uint64 { return 0 }
