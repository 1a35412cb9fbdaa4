//go:build amd64 || arm64

package ctxshutdown

// framePointers records the return addresses of the caller and of eight frames above, by the chain of frame pointers that
// Go keeps on these processors and that its own execution tracer follows. It takes a few nanoseconds, a tenth of
// runtime.Callers, which is most of what a traced guard would cost. Assembly is not preempted, so that the stack stays
// where it is meanwhile.
//
//go:noescape
func framePointers(pcs *[9]uintptr)

// fill records from where the caller was called.
func (at *site) fill() { framePointers((*[9]uintptr)(at)) }
