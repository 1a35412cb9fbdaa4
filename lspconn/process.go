package lspconn

import (
	"io"
	"syscall"

	"github.com/swansong-go/swansong/internal/proc"
)

// serverProcess is what a connection needs of the server's process. Tests substitute an in-process
// server, so that a test can run ten thousand connections.
type serverProcess interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader // returns io.EOF at the latest when Done is closed and everything in the pipe has been read
	Stderr() io.Reader
	Exited() <-chan struct{} // returns a channel that is closed when the server itself has exited
	Done() <-chan struct{}   // returns a channel that is closed when every process that the server started has been reaped
	Exit() proc.Exit
	End(proc.Deadlines) (proc.Exit, error)
	Close()
}

// A process is a *proc.Process that implements serverProcess. It converts the pipes from files to
// interfaces.
type process struct{ *proc.Process }

func (p process) Stdin() io.WriteCloser { return p.Process.Stdin() }
func (p process) Stdout() io.Reader     { return p.Process.Stdout() }
func (p process) Stderr() io.Reader     { return p.Process.Stderr() }

func startProcess(s Server) (serverProcess, error) { return startSpec(s.spec()) }

// spec returns the proc.Spec that starts the server. If this program is killed, the kernel kills
// the server: not every server ends when its stdin is closed.
func (s Server) spec() proc.Spec {
	return proc.Spec{Args: s.Command, Dir: s.Dir, Env: s.Env, ParentDeath: syscall.SIGKILL}
}

func startSpec(spec proc.Spec) (serverProcess, error) {
	p, err := proc.Start(spec)
	if err != nil {
		return nil, err
	}
	return process{p}, nil
}
