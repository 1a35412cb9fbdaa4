package upgrade

import (
	"os"
	"slices"
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

var tookOver atomic.Bool

// children are the children that this program had when it was executed. Only an upgrade gives a
// program children that it has not started.
var children []proc.Adoptable

// Children returns the processes that the program before this one had started and not reaped.
func (t *Taken) Children() []proc.Adoptable { return children }

// TookOver reports whether this program has taken over from another one, which Done completes. Some
// failures at the start end a launcher, but must not end one that has taken over processes that
// already serve. So the command "launcher run" calls TookOver after such a failure.
func TookOver() bool { return tookOver.Load() }

// Lock returns the locked directory. The directory stays locked when one program replaces the
// other, because the lock belongs to the open file and not to the program.
func (t *Taken) Lock() *os.File { return t.use(t.Files.Lock) }

// Admin returns the listening unix socket of the launcher, nil if it was not handed over.
func (t *Taken) Admin() *os.File {
	if t == nil {
		return nil
	}
	return t.files[t.Files.Admin] // Done may close this file, because the server listens on a duplicate of it
}

// Guardian returns the pipe to the guardian, the process that ends the launcher's processes if the
// launcher is killed. It is nil if there is no guardian.
func (t *Taken) Guardian() *os.File {
	if t == nil {
		return nil
	}
	return t.use(t.Files.Guardian)
}

// OpenOutputs stores in the record of each process the pipes of its output, and the beginnings of
// lines that the earlier program had read from them. It also stores the process's socket for
// messages.
func (t *Taken) OpenOutputs() {
	for _, p := range t.State.Processes() {
		numbers, ok := t.Files.Outputs[p.ID]
		if !ok {
			continue
		}
		p.Outputs, p.Kept = [2]*os.File{t.use(numbers[0]), t.use(numbers[1])}, t.Kept[p.ID]
		p.Notify = t.use(numbers[2])
	}
}

// WithSelf returns the state with one change: this program is listed as the first process that has
// the listeners of the groups open. It returns the state itself for a nil Taken.
func (t *Taken) WithSelf(s statefile.State) statefile.State {
	if t == nil {
		return s
	}
	s.Guardians = append([]proc.Adoptable{proc.Self()}, slices.Clone(s.Guardians)...)
	return s
}
