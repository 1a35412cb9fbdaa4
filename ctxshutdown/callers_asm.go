//go:build amd64 || arm64

package ctxshutdown

import "unsafe"

// framePointers records the return addresses of the caller and of eight frames above, by the chain of frame pointers that
// Go keeps on these processors and that its own execution tracer follows. It takes a few nanoseconds, a tenth of
// runtime.Callers, which is most of what a traced guard would cost. Assembly is not preempted, so that the stack stays
// where it is meanwhile.
//
// The chain is Go's own up to where C has called back (cgo). What follows there is whatever C has had in that register, and need not be
// a frame pointer at all. So a walk ends at a step that is none of Go's: towards lower addresses, or by more than 64 MiB. Go has no frames
// of that size, and C's stacks are elsewhere; that another number is one from just above this stack is too unlikely to matter.
//
// From is a frame to begin at, and nil for the caller's. Only a test makes up frames.
//
//go:noescape
func framePointers(pcs *[9]uintptr, from unsafe.Pointer)

// fill records from where the caller was called.
func (at *site) fill() { framePointers((*[9]uintptr)(at), nil) }
