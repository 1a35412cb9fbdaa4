package launcher

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// A handover is what a process prints, read until the reader is told to leave it to the next one: then to the end of the line that
// has been begun, and not a byte further. So no line is cut in two between a guardian and the launcher after it. Read by one
// goroutine.
//
// The other way round nothing can be done: a launcher that is killed takes with it what it has read and not written yet, half a
// line or a queue. It leaves in no other way while a process is kept.
type handover struct {
	file     *os.File
	most     int           // bytes of the rest of a line: one that never ends is cut, as everywhere
	patience time.Duration // for a process that has stopped in the middle of a line

	begun bool // a line of which the end has not been read yet
	late  time.Time
}

// linePatience is how long a process may pause in the middle of a line while whoever reads it leaves.
const linePatience = 100 * time.Millisecond

// leave has the reader come to an end.
func (h *handover) leave() {
	h.file.SetReadDeadline(time.Unix(1, 0)) // fails where the end has been read, and nobody is there to stop
}

func (h *handover) Read(p []byte) (n int, err error) {
	if h.late.IsZero() {
		n, err = h.file.Read(p)
		if n > 0 {
			h.begun = p[n-1] != '\n'
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		h.late = time.Now().Add(h.patience)
	}
	if !h.begun || h.most <= 0 || len(p) == 0 {
		return 0, io.EOF
	}
	// A byte at a time, since there is no way to give back what is behind the line. The pipe is looked at once more when it is too
	// late, so that a slow machine cuts no line that is there.
	for over := false; ; over = true {
		h.file.SetReadDeadline(time.Time{})
		if n, _ = proc.ReadNow(h.file, p[:1]); n == 0 && !over {
			h.file.SetReadDeadline(h.late)
			n, err = h.file.Read(p[:1])
		}
		switch {
		case n > 0:
			h.begun = p[n-1] != '\n'
			h.most -= n
			return n, nil
		case over:
			return 0, io.EOF
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
	}
}
