package upgrade

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// Version is the version of [Handoff]. It grows when a field is added or changes its meaning, but
// only once between two releases. Programs built between two releases read only what programs built
// before them wrote.
const Version = 1

// A Handoff is what a program has to know to go on in the place of another. It contains secrets, so
// it is never written to a disk.
type Handoff struct {
	Version int
	ID      string // identifies this upgrade
	Reason  string
	Program string   // path of the program that hands over its launcher
	Args    []string // arguments of that program, the first of which is its name

	Dir    string // directory of the launcher
	Admin  string // address of the admin service over TCP; empty if there is none
	State  statefile.State
	Groups map[string]json.RawMessage // data about each group that State does not have, by name of the group
	Lines  json.RawMessage            // the last lines that processes have printed
	Kept   map[string][2][]byte       // the incomplete last lines that were read, by process, in the order of output.Streams

	Files Files
}

// Files are the numbers of the open files that are handed over; 0 for those that are not.
type Files struct {
	Program  int               // the executable of the program that hands over
	Lock     int               // the locked directory
	Admin    int               // the listening unix socket of the launcher
	Guardian int               // the pipe to the guardian, a process that ends the launcher's processes if the launcher is killed
	Sockets  []int             // the listeners of groups
	Outputs  map[string][3]int // the pipes of processes, in the order of output.Streams, and their sockets for sd_notify(3) messages
}

// decode reads a handoff. If it returns an error because it does not understand all of a handoff,
// it returns what it does understand, so that the program can go back.
func decode(r io.Reader) (*Handoff, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var version struct{ Version int }
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, fmt.Errorf("launcher: the data that the running launcher hands over is not valid JSON: %w", err)
	}
	h := &Handoff{}
	// To go back to the earlier program, the fields that can be decoded are enough, as long as
	// Files.Program and Args are among them. State is not decoded here, because an unknown field in
	// it would end the decoding before the other fields are read.
	readRest := func() {
		json.Unmarshal(text, &struct {
			*Handoff
			State json.RawMessage
		}{Handoff: h})
	}
	if v, oldest := version.Version, max(1, Version-1); v < oldest || v > Version {
		readRest()
		return h, fmt.Errorf("launcher: the data that the running launcher hands over has version %d, but this program reads %d to %d; stop the launcher, and start this program", v, oldest, Version)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(h); err != nil {
		readRest()
	}
	return h, err
}

// number returns the descriptor of f, or 0 if f is nil or closed. 0 is stdin, which is never handed
// over. number does not call File.Fd, which would make the file blocking: if the upgrade fails,
// this launcher goes on with its files.
func number(f *os.File) (n int) {
	if f == nil {
		return 0
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	conn.Control(func(fd uintptr) { n = int(fd) })
	return n
}

// Open has the open files that a launcher hands over. Files that are nil are left out.
type Open struct {
	Lock, Admin, Guardian *os.File
	Sockets               []*os.File
	Outputs               map[string][3]*os.File
}

// list returns the files, and their file descriptors as numbers. A file keeps its descriptor across
// the execve, so the next program needs only the numbers.
func (o Open) list(program *os.File) (files []*os.File, numbers Files) {
	add := func(f *os.File) int {
		if f != nil {
			files = append(files, f)
		}
		return number(f)
	}
	numbers = Files{Program: add(program), Lock: add(o.Lock), Admin: add(o.Admin), Guardian: add(o.Guardian), Outputs: map[string][3]int{}}
	for _, f := range o.Sockets {
		numbers.Sockets = append(numbers.Sockets, add(f))
	}
	for id, of := range o.Outputs {
		numbers.Outputs[id] = [3]int{add(of[0]), add(of[1]), add(of[2])}
	}
	return files, numbers
}

// Program returns the absolute path of the program to execute. If the argument is empty, that is
// the path by which this program was started. If that path is a link, it may lead to another file
// by now.
//
// That path comes from os.Args, and not from /proc/self/exe, which is the file that this program
// was started from: an upgrade to the same path is meant for another file, which has been put there
// since.
func Program(program string) (string, error) {
	var err error
	if program == "" {
		if program, err = exec.LookPath(os.Args[0]); err != nil {
			program, err = os.Executable()
		}
	} else {
		program, err = exec.LookPath(program)
	}
	if err == nil {
		program, err = filepath.Abs(program)
	}
	return program, err
}
