package graceful

import "sync"

// A watcher calls a function with every status in order. Its goroutine runs only while there are
// statuses to deliver.
type watcher struct {
	f    func(Status)
	fail func(error) // called with the panic of f

	mu      sync.Mutex
	queue   []Status
	idle    chan struct{} // closed once all queued statuses have been delivered; nil before the first status
	running bool
	stopped bool
}

func (w *watcher) notify(st Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.queue = append(w.queue, st)
	if !w.running {
		w.running, w.idle = true, make(chan struct{})
		go w.run()
	}
}

func (w *watcher) run() {
	for {
		w.mu.Lock()
		if w.stopped || len(w.queue) == 0 {
			w.running = false
			close(w.idle)
			w.mu.Unlock()
			return
		}
		st := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		ok := false
		catchPanic(func() error { w.f(st); return nil }, func(err error) {
			if ok = err == nil; !ok {
				// Report the panic before w.idle is closed: Run then takes this watcher for
				// finished, and may return.
				w.fail(err)
				w.mu.Lock()
				defer w.mu.Unlock()
				w.stopped, w.running = true, false
				close(w.idle)
			}
		})
		if !ok {
			return
		}
	}
}

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

// flushed returns a channel that is closed when all statuses have been delivered. It returns nil if
// there has been no status.
func (w *watcher) flushed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle
}
