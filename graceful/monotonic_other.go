//go:build !linux

package graceful

// monotonicTime returns an empty string, because only Linux has systemd.
func monotonicTime() string { return "" }
