package launcher

import (
	"os"

	"github.com/swansong-go/swansong/internal/proc"
)

// cleanUp removes what a launcher that was killed has left in its directory: its sockets and its state file. Its guardian does
// so, when all that was to die with it has, and only where nothing is lost by it:
//
//   - It has the lock meanwhile, which is not for long, so that no launcher goes by what is being removed.
//   - Nobody is left whom the next launcher would have to end, or to adopt, nor another guardian: or it leaves all as it is.
//
// Told to leave, it waits no longer for the lock: a launcher that has it waits for us.
func cleanUp(dir string, self proc.Pen, leave <-chan os.Signal) error {
	lock, err := os.Open(dir)
	if err != nil {
		return nil // there is nothing any more
	}
	defer lock.Close()
	if lockSoon(lock, leave) != nil {
		return nil // there is a launcher, and it sees to all this
	}
	r, err := readState(stateIn(dir))
	if err != nil || len(r.Guardians) != 1 || r.Guardians[0].Mark != self.Mark || r.keeps() {
		return err
	}
	for _, g := range r.Groups {
		for _, p := range g.Processes {
			if p.Kept.PID != 0 && p.Kept.Alive() { // without its mark
				return nil
			}
		}
	}
	for _, g := range r.Groups {
		for _, p := range g.Processes {
			removeFilesOf(dir, p.ID)
		}
		for _, s := range g.Sockets {
			if s.Listen.Network == "unix" {
				removeStale(s.Listen.Address)
			}
		}
	}
	os.Remove(SocketIn(dir))
	os.Remove(nextOf(stateIn(dir)))
	return os.Remove(stateIn(dir))
}

// removeFilesOf removes what a process that has ended has had in the launcher's directory.
func removeFilesOf(dir, id string) {
	for _, suffix := range append([]string{"sock", "app"}, streams...) {
		os.Remove(fifo(dir, id, suffix))
	}
}
