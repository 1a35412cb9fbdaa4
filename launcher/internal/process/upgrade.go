package process

import (
	"os"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// Suspend stops reading what the process prints, until the function resume is called. The files are
// the pipes of stdout and stderr and the socket for messages, each nil if there is none. The result
// kept contains, for stdout and stderr, the beginning of a line whose rest has not been read. The
// caller has closed the [upgrade.Gate] of the launcher.
func (p *Process) Suspend() (files [3]*os.File, kept [2][]byte, resume func(), err error) {
	var undo []func()
	resume = func() {
		for _, f := range undo {
			f()
		}
	}
	for i, o := range []*proc.Output{p.proc.Stdout(), p.proc.Stderr()} {
		if o != nil {
			files[i], kept[i] = o.Pause()
			undo = append(undo, o.Resume)
		}
	}
	if p.notify != nil {
		if files[2], err = p.notify.File(); err == nil {
			undo = append(undo, func() { files[2].Close() })
		}
	}
	return files, kept, resume, err
}

// AddIdentity adds to a record of the process what a program that takes over in an upgrade needs to
// recognize the process, such as its pid and start time. The records of processes that outlive
// their launcher (Keep) already contain that, and are not changed.
func (p *Process) AddIdentity(to *statefile.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to.Adoptable.Mark == "" && p.proc != nil {
		to.Adoptable = p.proc.Identity()
	}
}
