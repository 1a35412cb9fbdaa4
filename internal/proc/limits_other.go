//go:build !linux

package proc

import "errors"

// CheckLimits returns an error: this system has no cgroups.
func CheckLimits(Limits) error { return errors.New("this system has no cgroups") }
