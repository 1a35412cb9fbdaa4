package proc

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// forker runs the forks of all processes with Spec.ParentDeath on one OS thread. The kernel regards
// the thread that forked as the parent, and sends the parent-death signal when that thread ends
// (go.dev/issue/27505). So the thread exists as long as one of these processes.
//
// In a program that calls ServeForks, the main thread runs all forks as long as the program runs.
// Only such a program can execute itself anew without losing its processes: execve ends all threads
// but the calling one, which becomes the main thread of the program that is executed.
var forker struct {
	isMain    atomic.Bool // whether the main thread runs the forks
	mu        sync.Mutex
	processes int         // number of calls of onForkingThread whose function release was not called; the thread ends when it is 0
	forks     chan func() // the forks that the thread has to run; closed when the thread may end; nil if there is no thread
}

// onForkingThread calls fork on the forking thread. The thread stays until the caller calls
// release.
func onForkingThread(fork func()) (release func()) {
	forker.mu.Lock()
	if forker.processes++; forker.forks == nil {
		forker.forks = make(chan func())
		go runForks(forker.forks)
	}
	forks := forker.forks
	forker.mu.Unlock()
	done := make(chan struct{})
	forks <- func() { defer close(done); fork() }
	<-done
	return func() {
		forker.mu.Lock()
		defer forker.mu.Unlock()
		if forker.processes--; forker.processes == 0 && !forker.isMain.Load() {
			close(forker.forks)
			forker.forks = nil
		}
	}
}

func runForks(forks <-chan func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for fork := range forks {
		fork()
	}
}
