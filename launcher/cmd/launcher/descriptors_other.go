//go:build !unix

package main

// keepDescriptors does nothing: on this system, a process inherits only what it is given.
func keepDescriptors() {}
