package eventloop

import (
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A Handle says that somebody outside of the loop may still post to it: a driver thread, a connection, a subscription.
// [Loop.Quiesce] waits for all handles to be released, and the completion of the loop's scope does. It does not keep the
// loop from stopping.
//
// Its methods may be called concurrently.
type Handle struct {
	loop  *Loop
	guard atomic.Pointer[ctxshutdown.Guard]
}

// Handle returns a new handle of the loop, which must be released. It may be had before the start; nil and false once the
// loop has been told to stop.
func (l *Loop) Handle() (h *Handle, ok bool) {
	guard, ok := l.handles.TryGuard()
	if !ok {
		return nil, false
	}
	h = &Handle{loop: l}
	h.guard.Store(guard)
	l.box.handles.add()
	return h, true
}

// Post is [Loop.Post] until the handle is released, and refuses then, which is counted in the same way.
func (h *Handle) Post(f func()) bool {
	mustFunc(f != nil, "Post")
	if h.guard.Load() == nil {
		h.loop.box.refuse(h.loop.State())
		return false
	}
	return h.loop.Post(f)
}

// Release gives the handle back. Again is a no-op.
func (h *Handle) Release() {
	if g := h.guard.Swap(nil); g != nil {
		h.loop.box.handles.done()
		g.Release()
	}
}
