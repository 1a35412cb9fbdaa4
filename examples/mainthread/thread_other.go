//go:build !linux

package main

// thread cannot tell one from another here.
func thread() string { return "some thread" }
