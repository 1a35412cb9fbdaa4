package guardian

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// EndPrevious ends the processes of an earlier launcher that are not to be kept. It returns the
// rest of the state of that launcher: the kept processes and the guardians that exist, or have
// existed since the machine was booted.
//
// If keeps is false, no group of the configuration is to be kept. If then no kept process is found
// either, EndPrevious sets a damaged state file aside, and returns the new path of the file.
// Otherwise a damaged file is an error: the file may have had more kept processes than EndPrevious
// can find without it, and only an operator can say whether some are missing.
func EndPrevious(dir string, keeps bool) (s statefile.State, aside string, err error) {
	path := statefile.Path(dir)
	s, err = statefile.Read(path)
	var bad *statefile.Error
	if errors.As(err, &bad) && bad.Damaged {
		found := find(dir)
		bad.Found = found.names()
		if keeps || len(found.kept) > 0 {
			return statefile.State{}, "", err
		}
		if err = found.endUnkept(); err == nil {
			aside, err = statefile.SetAside(path)
		}
		return statefile.State{Guardians: found.guardians}, aside, err
	}
	if err == nil && s.Groups != nil {
		s, err = endRecorded(dir, s)
	}
	return s, "", err
}

// endRecorded ends the processes in a state that are not to be kept, and returns the rest.
//
// After a reboot nothing is ended: no process of that state exists, and its pids may be those of
// other programs by now. What jobs have finished, and which groups an operator has stopped, is
// forgotten as well.
func endRecorded(dir string, s statefile.State) (statefile.State, error) {
	e := ender{dir: dir, deadline: time.Now().Add(Timeout), sameBoot: s.Boot == proc.Boot()}
	if e.sameBoot {
		e.empty(s.Containment)
	}
	var guardians []proc.Adoptable
	for _, k := range s.Guardians {
		if k, ok := withPID(k); ok && e.sameBoot {
			guardians = append(guardians, k)
		}
	}
	s.Guardians = guardians
	for name, g := range s.Groups {
		if !e.sameBoot {
			g.Finished, g.FinishedFailed, g.Stopped = 0, 0, false
		}
		g.Processes = slices.DeleteFunc(g.Processes, func(p *statefile.Process) bool {
			if e.keepOrEnd(p) {
				return false
			}
			statefile.RemoveFilesOf(dir, p.ID)
			return true
		})
		s.Groups[name] = g
	}
	return s, e.err()
}

// An ender ends the processes of an earlier launcher; one deadline applies to all of them. If a
// process does not end, the ender goes on with the others, so that its error names every process
// that did not end.
type ender struct {
	dir      string
	deadline time.Time
	sameBoot bool     // the machine has not been rebooted since the earlier launcher wrote the state file
	left     []string // names of the processes that could not be ended
}

// err returns an error that names the processes that could not be ended.
func (e *ender) err() error {
	if len(e.left) == 0 {
		return nil
	}
	return fmt.Errorf("launcher: processes of an earlier launcher do not end: %s; end them, or find out what blocks them, and start again",
		strings.Join(e.left, ", "))
}

// empty kills all processes in a containment (a cgroup, or a mark in their environment). At the
// deadline it gives up, and notes the processes that are left.
func (e *ender) empty(c proc.Containment) {
	for _, m := range c.Empty(e.deadline) {
		e.left = append(e.left, m.String())
	}
}

// keepOrEnd reports whether a process is to be adopted. If it is not, keepOrEnd ends the process.
func (e *ender) keepOrEnd(p *statefile.Process) bool {
	switch {
	case !e.sameBoot:
		return false
	// The launcher died while it started the process, and the PID was not recorded; find the
	// process by its containment (a cgroup, or a mark in its environment).
	case p.IsKept() && p.Adoptable.PID == 0:
		if k, ok := p.Adoptable.Leader(); ok {
			p.Adoptable = k
			return true
		}
		e.empty(p.Adoptable.Containment)
	case p.IsKept():
		return true
	// The process is not kept, and has removed its mark from its environment, so it is found by its
	// PID.
	case p.Adoptable.PID != 0 && p.Adoptable.Alive():
		if err := endNow(p.Adoptable, e.deadline); err != nil {
			e.left = append(e.left, err.Error())
		}
	}
	return false
}

// endNow kills a process that an earlier launcher has started, and waits at most until the deadline
// for it to end. It kills at once, because the process was to die with its launcher.
func endNow(k proc.Adoptable, deadline time.Time) error {
	p, err := proc.Adopt(k, proc.Spec{Args: []string{"process of an earlier launcher"}, Linger: -1})
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = p.End(proc.Deadlines{GiveUp: deadline})
	return err
}

// End ends the guardian of an earlier launcher. The guardian must not read the output of processes
// any longer, because this launcher is about to read it.
//
// SIGTERM comes first, so that the guardian reads to the end of the lines that it has begun. After
// an upgrade the guardian is a child of this program, which therefore has to reap it.
func End(k proc.Adoptable) {
	if !k.Alive() {
		return
	}
	p, err := proc.Adopt(k, proc.Spec{Args: []string{"guardian"}, Linger: -1, Child: true})
	if err != nil {
		return
	}
	now := time.Now()
	p.End(proc.Deadlines{Terminate: now, Kill: now.Add(spec.ReapTimeout), GiveUp: now.Add(2 * spec.ReapTimeout)})
	p.Close()
}
