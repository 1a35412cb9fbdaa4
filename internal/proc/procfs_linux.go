package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// older contains the processes that are older than this program, and so belong to none of the
// containers that it has started. They are most of a machine's processes, and to read all of them
// for each search would take too long on a busy machine. A pid can be reused, but not within a
// second, so the set is valid for that long. The mutex procReader guards the set.
var older struct {
	pids  map[int]bool
	until time.Time
}

// adopting is set once this program uses containments (groups of processes that are ended together)
// that another program has started. Their members can be older than this program.
var adopting atomic.Bool

// processes returns the processes in /proc. It omits those that are older than this program if the
// flag adopting is not set. The caller holds the mutex procReader.
func processes() (all []Member) {
	if now := time.Now(); now.After(older.until) || adopting.Load() {
		older.pids, older.until = map[int]bool{}, now.Add(time.Second)
	}
	born := thisOwner().start
	for _, pid := range pids() {
		if older.pids[pid] {
			continue
		}
		m, ok := stat(pid)
		switch {
		case !ok:
		case m.start < born && !adopting.Load():
			older.pids[pid] = true
		default:
			all = append(all, m)
		}
	}
	return all
}

// pids returns the pids of all processes in /proc.
func pids() (all []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// stat parses /proc/pid/stat. The command is in parentheses and may contain parentheses, so it ends
// at the last one. A search calls stat for each process of the machine, so it avoids the system
// calls and the memory that os.ReadFile and strings.Fields would take.
func stat(pid int) (m Member, ok bool) {
	fd, err := openForRead(procFile(pid, "stat"))
	if err != nil {
		return m, false
	}
	// The file has about 300 bytes. The fields that are needed are in its first half.
	var buffer [1024]byte
	n, err := read(fd, buffer[:])
	syscall.Close(fd)
	text := buffer[:max(n, 0)]
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if err != nil || open < 0 || end < open {
		return m, false
	}
	// The fields after the command are: state ppid pgrp session tty tpgid flags …; num_threads and
	// starttime are the 20th and the 22nd field of the line.
	var fields [20][]byte
	rest := text[end+1:]
	for i := range fields {
		rest = bytes.TrimLeft(rest, " ")
		space := bytes.IndexByte(rest, ' ')
		if space < 0 {
			return m, false
		}
		fields[i], rest = rest[:space], rest[space:]
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(string(fields[i]))
		return n
	}
	m = Member{PID: pid, PPID: number(1), PGID: number(2), SID: number(3), Command: string(text[open+1 : end])}
	m.start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	// A process whose main thread has ended is in state Z, too. But its other threads run on, so do
	// not take it for a zombie.
	m.zombie = (fields[0][0] == 'Z' || fields[0][0] == 'X') && number(17) <= 1
	const pfKthread = 0x00200000
	m.kernel = number(6)&pfKthread != 0
	return m, err == nil
}

func openForRead(name string) (fd int, err error) {
	for {
		if fd, err = syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err != syscall.EINTR {
			return fd, err
		}
	}
}

func read(fd int, b []byte) (n int, err error) {
	for {
		if n, err = syscall.Read(fd, b); err != syscall.EINTR {
			return n, err
		}
	}
}

// readFile returns the content of a file in /proc. os.ReadFile begins with 512 bytes, so it needs
// several system calls for most environments, and a search reads those of all processes.
func readFile(name string) (content []byte, err error) {
	fd, err := openForRead(name)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	content = make([]byte, 0, 4<<10)
	for {
		n, err := read(fd, content[len(content):cap(content)])
		content = content[:len(content)+max(n, 0)]
		if n <= 0 {
			return content, err
		}
		content = slices.Grow(content, 1)
	}
}

// descendants returns the children of a process, their children, and so on. Unlike a search in all
// of /proc, it takes less than a millisecond. It misses processes whose parent has exited, and may
// miss one if another child ends at the same time. It finds nothing on kernels without
// CONFIG_PROC_CHILDREN.
func descendants(pid int) (found []Member) {
	for _, task := range threads(pid) { // each thread has a list of the children that it has started
		text, _ := os.ReadFile(filepath.Join(task, "children"))
		for _, field := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(field)
			if m, ok := stat(child); ok && m.PPID == pid {
				found = append(append(found, m), descendants(child)...)
			}
		}
	}
	return found
}

// threads returns the directories of the threads of a process.
func threads(pid int) (dirs []string) {
	tasks, _ := os.ReadDir(procFile(pid, "task"))
	for _, task := range tasks {
		dirs = append(dirs, filepath.Join(procFile(pid, "task"), task.Name()))
	}
	return dirs
}

// environ returns the environment that a process was started with.
func environ(pid int) ([]byte, error) {
	env, err := readFile(procFile(pid, "environ"))
	if len(env) > 0 || errors.Is(err, fs.ErrPermission) {
		return env, err
	}
	// If the main thread has ended and other threads run, the environ of the process is empty. That
	// of a running thread is not.
	for _, task := range threads(pid) {
		if env, err := readFile(filepath.Join(task, "environ")); len(env) > 0 {
			return env, err
		}
	}
	return env, err
}
