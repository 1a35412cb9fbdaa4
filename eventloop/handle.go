package eventloop

import (
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A Handle announces that code outside of the loop may still post to it: a driver thread, a
// connection, a subscription. [Loop.Quiesce] waits until all handles have been released, and so
// does the completion of the loop's scope. A handle does not keep the loop from stopping. To tell
// such code that it should end, use a context or [Loop.ShutdownHandle].
//
// The methods may be called concurrently.
type Handle struct {
	loop  *Loop
	guard atomic.Pointer[ctxshutdown.Guard]
}

// Handle returns a new handle of the loop. The caller must release it. It can be created before the
// loop is started. Handle returns nil and false once the loop has been stopped.
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

// Post is [Loop.Post] until the handle is released. Afterwards it returns false, and the callback
// is counted as refused.
func (h *Handle) Post(f func()) bool {
	mustFunc(f != nil, "Post")
	if h.guard.Load() == nil {
		h.loop.box.countRefused(h.loop.State())
		return false
	}
	return h.loop.Post(f)
}

// Release releases the handle. Further calls have no effect.
func (h *Handle) Release() {
	if g := h.guard.Swap(nil); g != nil {
		h.loop.box.handles.done()
		g.Release()
	}
}
