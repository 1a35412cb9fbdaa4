//go:build !linux

package lspconn_test

// withVariable returns nothing on systems that do not show the environment of other processes.
func withVariable(string) []osProcess { return nil }
