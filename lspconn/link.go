package lspconn

import (
	"io"

	"github.com/swansong-go/swansong/internal/proc"
)

// A link is the server's process as a connection knows it. Tests put others in its place, to have ten thousand of them.
type link interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader // ends, at the latest, when Done is closed and what was in the pipe has been read
	Stderr() io.Reader
	Exited() <-chan struct{}
	Done() <-chan struct{}
	Exit() proc.Exit
	End(proc.Deadlines) (proc.Exit, error)
	Close()
}

type process struct{ *proc.Process }

func (p process) Stdin() io.WriteCloser { return p.Process.Stdin() }
func (p process) Stdout() io.Reader     { return p.Process.Stdout() }
func (p process) Stderr() io.Reader     { return p.Process.Stderr() }

func spawn(s Server) (link, error) {
	return spawnBy(proc.Spec{Args: s.Command, Dir: s.Dir, Env: s.Env})
}

func spawnBy(spec proc.Spec) (link, error) {
	p, err := proc.Start(spec)
	if err != nil {
		return nil, err
	}
	return process{p}, nil
}
