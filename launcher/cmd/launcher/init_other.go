//go:build !linux

package main

// beInit does nothing: only Linux has PID namespaces.
func beInit() {}
