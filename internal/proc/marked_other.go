//go:build !linux

package proc

func findMarked(string) []Marked { return nil }
