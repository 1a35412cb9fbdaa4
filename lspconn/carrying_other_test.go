//go:build !linux

package lspconn_test

// carrying is for systems where anybody can be looked at.
func carrying(string) []somebody { return nil }
