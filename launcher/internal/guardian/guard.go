package guardian

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// HoldTime is how long a guardian holds listeners open after the last process that has outlived the
// launcher has ended, if no launcher is started. Tests change it.
var HoldTime = time.Minute

// Guard is the main function of a guardian process. It returns when the launcher has ended and the
// guardian has nothing left to do.
//
// While the launcher lives, Guard ignores SIGTERM, SIGINT and SIGHUP. It also ignores SIGPIPE,
// because the launcher can die before it has read the answer of the guardian.
func Guard() error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	// The guardian is executed as /proc/self/exe. Give it the name of the program: otherwise ps
	// would show the name "exe".
	if program, err := os.Executable(); err == nil {
		os.WriteFile("/proc/self/comm", []byte(filepath.Base(program)), 0)
	}
	in := bufio.NewReader(os.Stdin)
	var o Orders
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		return fmt.Errorf("launcher: a guardian has to be started by a launcher: cannot read its orders from stdin: %w", err)
	}
	fmt.Println(guarding)
	if err := o.guard(in); err != nil {
		complain(o.Dir, err.Error())
		return err
	}
	return nil
}

// guard waits for the end of the launcher, and then does what is left to do: it kills the processes
// that were to die with the launcher, and kept processes that are not in the state file. Then it
// reads the output of the kept processes, or removes the launcher's files if there are none. Only
// the guardian that is in charge does this; see isInCharge.
//
// SIGTERM is handled only from the end of the launcher on. Until then it is ignored, because a
// signal that goes to all processes of a service must not end the guardian before its launcher.
func (o Orders) guard(in *bufio.Reader) error {
	var known update
	for {
		line, err := in.ReadString('\n')
		if strings.TrimSpace(line) == exitLine {
			return nil
		}
		if err != nil { // the launcher has ended
			break
		}
		// Ignore errors: a line that is not JSON is empty, or the launcher has written only a part.
		json.Unmarshal([]byte(line), &known)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if left := o.Processes.Empty(time.Now().Add(Timeout)); len(left) > 0 {
		return fmt.Errorf("launcher: the guardian could not kill processes that were to die with the launcher: %v", left)
	}
	s, err := statefile.Read(statefile.Path(o.Dir))
	if err != nil {
		return err
	}
	if err := endUnrecorded(s, known.Unrecorded); err != nil {
		return err
	}
	if !isInCharge(s, o.Self) {
		return nil
	}
	if !s.HasKept() {
		return cleanUp(o.Dir, o.Self, stop)
	}
	var secrets []string
	for _, s := range known.Secrets {
		secrets = append(secrets, string(s))
	}
	return readOutputs(s, o.Dir, stop, mask.New(secrets))
}

// endUnrecorded kills kept processes (those that are to outlive the launcher) that the next
// launcher would not find. The list unrecorded has the containment of each, a cgroup or a mark in
// its environment. A process that is in the state file is not killed. The list can be older than
// the file, because a process can have been recorded after the launcher sent the list.
func endUnrecorded(s statefile.State, unrecorded []proc.Containment) error {
	recorded := map[string]bool{}
	for _, p := range s.Processes() {
		recorded[p.Adoptable.Mark] = true
	}
	var left []proc.Member
	for _, c := range unrecorded {
		if !recorded[c.Mark] {
			left = append(left, c.Empty(time.Now().Add(Timeout))...)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("launcher: the guardian could not kill processes that are not in the state file: %v", left)
	}
	return nil
}

// isInCharge reports whether this guardian has to read the output of the processes that outlive the
// launcher. self is the containment of this guardian, a mark in its environment. If another
// launcher has been started since, that launcher reads the output, or its own guardian does: it has
// removed this guardian from the state file, or added its own guardian behind it.
func isInCharge(s statefile.State, self proc.Containment) bool {
	i := slices.IndexFunc(s.Guardians, func(k proc.Adoptable) bool { return k.Mark == self.Mark })
	return i >= 0 && !slices.ContainsFunc(s.Guardians[i+1:], func(k proc.Adoptable) bool {
		k, ok := withPID(k)
		return ok && k.Alive()
	})
}

// withPID returns a guardian with its PID. The state file lacks the PID if the launcher died while
// it started the guardian. withPID returns false if no guardian was started.
func withPID(k proc.Adoptable) (proc.Adoptable, bool) {
	if k.PID != 0 {
		return k, true
	}
	return k.Leader()
}

// readOutputs writes the output of kept processes, those that have outlived their launcher, to
// their logs. It masks secrets as the launcher would do. It returns when the processes have ended
// or a signal arrives on stop.
//
// A stream that cannot be read does not keep the others from being read. Its error is returned in
// the end, and reaches the next launcher as a complaint.
func readOutputs(s statefile.State, dir string, stop <-chan os.Signal, masker *mask.Masker) error {
	var reading sync.WaitGroup
	var readers []*output.StoppableReader
	var errs []error
	complaints := newComplaints(dir)
	// Deferred first, so that it runs last: closing the logs can add reports.
	defer complaints.retry()
	logs := output.NewLogs(nil, complaints.add)
	for name, g := range s.Groups {
		for _, p := range g.Processes {
			if !p.IsKept() {
				continue
			}
			log, done := logs.Open(p.Config.Log, p.ID)
			defer done()
			for _, stream := range output.Streams {
				f, err := output.OpenFIFO(statefile.FileOf(dir, p.ID, stream))
				if p.OutputRemoved(err) {
					continue
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				r := output.NewStoppableReader(f, p.Config.Log.MaxLine, output.LineTimeout)
				readers = append(readers, r)
				reading.Go(func() {
					defer f.Close()
					current := func() *mask.Masker { return masker }
					if p.Config.Unmasked {
						current = nil
					}
					output.ReadLines(r, p.Config.Log.MaxLine, current, func(line string) {
						if log != nil {
							log.WriteLine(p.ID+" "+stream, line, logs.Counts(name))
						}
					})
				})
			}
		}
	}
	// The reading of a stream ends when the last process that has the stream open has ended, or
	// when Stop is called.
	ended := make(chan struct{})
	go func() { reading.Wait(); close(ended) }()
	select {
	case <-ended:
		// Keeps the listeners open for the next launcher, until HoldTime is over or that launcher
		// sends a signal.
		select {
		case <-time.After(HoldTime):
		case <-stop:
		}
	case <-stop:
	}
	for _, r := range readers {
		r.Stop()
	}
	<-ended
	return errors.Join(errs...)
}

// cleanUp removes the sockets and the state file of a launcher that was killed. It removes nothing
// if the next launcher needs the files:
//
//   - cleanUp holds the lock of the directory while it removes files, so no launcher reads them at
//     that time. If a launcher has the lock, cleanUp does nothing, because that launcher cleans up.
//   - If another guardian runs, or a process that the next launcher has to end or to adopt, nothing
//     is removed.
//
// A signal on stop ends the wait for the lock. Such a signal comes from a launcher that has the
// lock and waits until this guardian has ended.
func cleanUp(dir string, self proc.Containment, stop <-chan os.Signal) error {
	lock, err := os.Open(dir)
	if err != nil {
		return nil // the directory has been removed, so there is nothing to clean up
	}
	defer lock.Close()
	if statefile.WaitForLock(lock, stop) != nil {
		return nil
	}
	path := statefile.Path(dir)
	s, err := statefile.Read(path)
	if err != nil || len(s.Guardians) != 1 || s.Guardians[0].Mark != self.Mark || s.HasKept() {
		return err
	}
	for _, p := range s.Processes() {
		// A process can have removed the variable that marks it from its environment, so find it by
		// its PID.
		if p.Adoptable.PID != 0 && p.Adoptable.Alive() {
			return nil
		}
	}
	for _, p := range s.Processes() {
		statefile.RemoveFilesOf(dir, p.ID)
	}
	for _, g := range s.Groups {
		for _, socket := range g.Sockets {
			if socket.Listen.Network == "unix" {
				listeners.RemoveStale(socket.Listen.Address)
			}
		}
	}
	statefile.RemoveSockets(dir)
	return statefile.Remove(path)
}
