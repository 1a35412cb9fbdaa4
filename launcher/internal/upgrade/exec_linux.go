package upgrade

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/upgrade/early"
	"golang.org/x/sys/unix"
)

// Environment variables of a program that takes over.
const (
	envHandoff = early.Handoff              // "fd:pid": the descriptor of the file with the handoff, and the pid of the program
	envFailed  = "SWANSONG_UPGRADE_ERROR"   // why the program that was to take over has executed this one again
	envSignals = "SWANSONG_UPGRADE_SIGNALS" // signals that the program before this one has got, and may not have handled
)

// maxFailed is how many bytes of an error are handed over. Linux limits a variable to 128 KiB, and
// the text is for a message.
const maxFailed = 4 << 10

// caught contains the signals that an upgrade must not lose: those that this program received
// before it began to handle signals, and those that the program which it has replaced handed over
// to it.
var caught = Signals{early.Signals}

// This function adds the signals that the replaced program has handed over to the variable caught.
// It also lists the children of this program before main can start others, so that the list has
// only those that the replaced program has started.
func init() {
	if caught.c != nil {
		caught.add(os.Getenv(envSignals))
		children = proc.Children()
	}
}

// Exec executes a program in the place of this one, with the arguments of this one, and hands over
// h, the open files, and the signals that were caught. It returns only an error, after which
// everything is as before.
func (h *Handoff) Exec(program string, open Open, signals Signals) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	h.Version, h.Args = Version, os.Args
	var files []*os.File
	files, h.Files = open.list(self)
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("swansong-upgrade", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	memory := os.NewFile(uintptr(fd), "handoff")
	defer memory.Close()
	if _, err := memory.Write(text); err != nil {
		return err
	}
	return execute(program, os.Args, memory, files, "", signals)
}

// execute executes a program in the place of this one, with the open files under their numbers. In
// an upgrade it executes the new program, and failed is empty. When a program that has taken over
// executes the earlier one again, failed says why.
func execute(program string, args []string, handoff *os.File, files []*os.File, failed string, signals Signals) error {
	if _, err := handoff.Seek(0, io.SeekStart); err != nil {
		return err
	}
	env := []string{fmt.Sprintf("%s=%d:%d", envHandoff, number(handoff), os.Getpid())}
	if failed != "" {
		failed = strings.ReplaceAll(failed[:min(len(failed), maxFailed)], "\x00", "") // shortened and without zero bytes, because execve could fail otherwise
		env = append(env, envFailed+"="+failed)
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != envHandoff && name != envFailed && name != envSignals {
			env = append(env, v)
		}
	}
	// proc.Exec calls withSignals just before the execve, so that the environment also lists
	// signals that have arrived since Exec was called.
	withSignals := func() []string {
		if numbers := signals.take(); numbers != "" {
			return append(env, envSignals+"="+numbers)
		}
		return env
	}
	return proc.Exec(program, args, withSignals, append(files, handoff))
}

// A Taken is a launcher that this program has taken over. The methods of a nil Taken do nothing.
type Taken struct {
	*Handoff
	Failed string // why the upgrade has failed, if this is the program that had handed over; else empty

	files   map[int]*os.File // the files that were handed over, by number
	used    map[int]bool     // the numbers of files in use, which Done does not close
	handoff *os.File
}

// Take returns the launcher with this directory that was handed over to this program, nil if none
// was. Only the first successful call returns it. Take can return both an error and a Taken, with
// which the program can only go back.
func Take(dir string) (*Taken, error) { return take(func(h *Handoff) bool { return h.Dir == dir }) }

// GoBack executes again the program that has handed over, if this one has failed before it has
// called [Take]. It returns err if nothing was handed over, or if the earlier program cannot be
// executed.
func GoBack(err error) error {
	t, _ := take(func(*Handoff) bool { return true })
	return t.GoBack(err)
}

// take returns the handoff if the function wanted accepts it. The variable has the pid, because
// processes that this program starts inherit its environment, and must not take over from it.
//
// It unsets the variables only when the handoff is taken. So GoBack can still take the handoff if a
// start has failed before it called Take.
func take(wanted func(*Handoff) bool) (*Taken, error) {
	number, pid, _ := strings.Cut(os.Getenv(envHandoff), ":")
	if number == "" || pid != strconv.Itoa(os.Getpid()) {
		// The variable is not set, or is inherited and contains the pid of the parent process.
		return nil, nil
	}
	t := &Taken{Failed: os.Getenv(envFailed), files: map[int]*os.File{}, used: map[int]bool{}}
	fd, err := strconv.Atoi(number)
	if err == nil {
		t.handoff = t.file(fd)
		// Read from the beginning, because an earlier call of take may have read the file: it has
		// not taken the handoff if that was for another launcher.
		t.handoff.Seek(0, io.SeekStart)
		t.Handoff, err = decode(t.handoff)
	}
	if t.Handoff == nil {
		return nil, fmt.Errorf("launcher: cannot take over: %w", err)
	}
	if !wanted(t.Handoff) {
		return nil, nil // the handoff is for another Manager of this program
	}
	os.Unsetenv(envHandoff)
	os.Unsetenv(envFailed)
	os.Unsetenv(envSignals)
	if t.Failed != "" {
		// GoBack has executed this program by the path of a descriptor. The kernel has named the
		// process after that path, so ps and top would show a number.
		os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	}
	n := t.Files
	for _, fd := range append([]int{n.Program, n.Lock, n.Admin, n.Guardian}, n.Sockets...) {
		t.file(fd)
	}
	for _, of := range n.Outputs {
		for _, fd := range of {
			t.file(fd)
		}
	}
	if err != nil {
		return t, fmt.Errorf("launcher: cannot take over: %w", err)
	}
	return t, nil
}

// file returns the file that was handed over with a number, nil for 0.
func (t *Taken) file(fd int) *os.File {
	if t.files[fd] == nil && fd > 0 {
		syscall.CloseOnExec(fd)
		t.files[fd] = os.NewFile(uintptr(fd), "handed over")
	}
	return t.files[fd]
}

// GoBack executes again the program that has handed over, because this one cannot go on. It returns
// err if that is impossible: for a nil Taken, or if this program is itself the one that the other
// has executed again. Two programs that both fail would otherwise execute each other for ever.
func (t *Taken) GoBack(err error) error {
	if t == nil || t.Failed != "" || t.files[t.Files.Program] == nil {
		return err
	}
	var files []*os.File
	for fd, f := range t.files {
		if fd != number(t.handoff) {
			files = append(files, f)
		}
	}
	back := execute(fmt.Sprintf("/proc/self/fd/%d", t.Files.Program), t.Args, t.handoff, files, err.Error(), caught)
	return fmt.Errorf("%w; and the program from before the upgrade cannot be executed again: %w", err, back)
}

// Done closes the files that the launcher does not go on to use. It is called when the launcher has
// begun to work, after which it cannot go back. It sends this program again the signals that came
// before this program could handle them. It leaves out signals that stop a launcher if the channel
// stopped is closed, because a launcher that is stopping kills its processes when it gets a second
// signal.
func (t *Taken) Done(stopped <-chan struct{}) {
	if t == nil {
		return
	}
	for fd, f := range t.files {
		if !t.used[fd] {
			f.Close()
		}
	}
	tookOver.Store(true)
	caught.replay(stopped)
}

// use returns the file with the descriptor fd, and marks it as one that the launcher keeps open.
func (t *Taken) use(fd int) *os.File {
	t.used[fd] = true
	return t.files[fd]
}
