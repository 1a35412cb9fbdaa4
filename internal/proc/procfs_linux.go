package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

// processes returns all processes in /proc.
func processes() (all []Member) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if m, ok := stat(pid); ok {
				all = append(all, m)
			}
		}
	}
	return all
}

// stat parses /proc/pid/stat. The command is in parentheses and may contain parentheses, so it ends
// at the last one.
func stat(pid int) (m Member, ok bool) {
	text, err := os.ReadFile(procFile(pid, "stat"))
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if err != nil || open < 0 || end < open {
		return m, false
	}
	// The fields after the command are: state ppid pgrp session tty tpgid flags …; starttime is the
	// 22nd field of the line.
	f := strings.Fields(string(text[end+1:]))
	if len(f) < 20 {
		return m, false
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(f[i])
		return n
	}
	m = Member{PID: pid, PPID: number(1), PGID: number(2), SID: number(3), Command: string(text[open+1 : end])}
	m.start, err = strconv.ParseUint(f[19], 10, 64)
	m.zombie = f[0] == "Z" || f[0] == "X"
	const pfKthread = 0x00200000
	m.kernel = number(6)&pfKthread != 0
	return m, err == nil
}

// descendants returns the children of a process, their children, and so on. Unlike a search in all
// of /proc, it takes less than a millisecond. It misses processes whose parent has exited, and finds
// nothing on kernels without CONFIG_PROC_CHILDREN.
func descendants(pid int) (found []Member) {
	tasks, _ := os.ReadDir(procFile(pid, "task")) // each thread has the children that it has started
	for _, task := range tasks {
		text, _ := os.ReadFile(filepath.Join(procFile(pid, "task"), task.Name(), "children"))
		for _, field := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(field)
			if m, ok := stat(child); ok && m.PPID == pid {
				found = append(append(found, m), descendants(child)...)
			}
		}
	}
	return found
}
