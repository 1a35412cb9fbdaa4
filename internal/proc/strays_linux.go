package proc

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Children returns the children of this program, including those that have exited and have not been
// reaped.
func Children() (all []Adoptable) {
	for _, m := range newSnapshot().all {
		if m.PPID == os.Getpid() {
			all = append(all, Adoptable{PID: m.PID, Born: m.start})
		}
	}
	return all
}

// EndStrays ends those of the given children of this program that were started in the containment.
// It spares the processes in the slice known and the processes that were started for these. It
// reaps the children that have exited, and removes the cgroups in the containment that no process
// in known has. It gives up at the deadline.
func (p Containment) EndStrays(children, known []Adoptable, deadline time.Time) {
	isKnown := func(pid int) bool {
		return slices.ContainsFunc(known, func(k Adoptable) bool { return k.PID == pid })
	}
	for _, k := range children {
		m, ok := stat(k.PID)
		if !ok || m.start != k.Born || isKnown(k.PID) {
			continue
		}
		// Reap a zombie without a signal: its process group can contain processes in known.
		if m.zombie {
			if fd := pidfdOpen(k.PID); fd >= 0 {
				f := pollable(fd)
				awaitPidfd(f, deadline) // the main thread has exited; the other threads may take a moment longer
				f.Close()
			}
			syscall.Wait4(k.PID, nil, syscall.WNOHANG, nil)
			continue
		}
		marks := marksOf(m)
		ofKnown := slices.ContainsFunc(known, func(k Adoptable) bool { return slices.Contains(marks, k.Mark) })
		if !slices.Contains(marks, p.Mark) || ofKnown {
			continue
		}
		if dir := cgroupOf(procFile(k.PID, "cgroup")); filepath.Dir(dir) == p.Cgroup {
			k.Cgroup = dir
		}
		if stray, err := Adopt(k, Spec{Linger: -1, Child: true}); err == nil {
			now := time.Now()
			stray.End(Deadlines{Terminate: now, Kill: now, GiveUp: deadline})
			stray.Close()
		}
	}
	if p.Cgroup == "" {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(p.Cgroup, cgroupPrefix+"*"))
	for _, dir := range dirs {
		// Keep the cgroups of the processes in the slice known, even of those that have exited: a
		// cgroup says whether its process ran out of memory.
		if !slices.ContainsFunc(known, func(k Adoptable) bool { return k.Cgroup == dir }) {
			removeCgroups(dir)
		}
	}
}
