package lspconn_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
)

// An inProcess is a fake server that runs in a goroutine of the test. It imitates the effects of
// signals, and what the kernel does to the pipes of a process that ends. In a synctest bubble all
// its times are exact.
type inProcess struct {
	*fakelsp.Server
	stdin          *io.PipeWriter
	stdout         *io.PipeReader
	exited, killed chan struct{}

	mu   sync.Mutex
	exit proc.Exit
}

func serveInProcess(b fakelsp.Behaviour) *inProcess {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	g := &inProcess{Server: &fakelsp.Server{Behaviour: b}, stdin: inW, stdout: outR,
		exited: make(chan struct{}), killed: make(chan struct{})}
	go func() {
		code := g.Serve(inR, outW, func() { <-g.killed })
		g.mu.Lock()
		if g.exit.Signal == 0 {
			g.exit.Code = code
		}
		g.mu.Unlock()
		inR.Close()
		outW.Close()
		close(g.exited)
	}()
	go func() { // as the kernel does, close the pipes of a killed process
		select {
		case <-g.killed:
			inR.Close()
			outW.Close()
		case <-g.exited:
		}
	}()
	return g
}

func (g *inProcess) Stdin() io.WriteCloser   { return g.stdin }
func (g *inProcess) Stdout() io.Reader       { return g.stdout }
func (g *inProcess) Stderr() io.Reader       { return strings.NewReader(g.Behaviour.Stderr) }
func (g *inProcess) Exited() <-chan struct{} { return g.exited }
func (g *inProcess) Done() <-chan struct{}   { return g.exited }
func (g *inProcess) Close()                  { g.stdin.Close(); g.stdout.Close() }

func (g *inProcess) Exit() proc.Exit {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.exit
}

func (g *inProcess) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.exited:
		return
	default:
	}
	g.exit.Terminated = g.exit.Terminated || sig == syscall.SIGTERM
	g.exit.Killed = g.exit.Killed || sig == syscall.SIGKILL
	if sig == syscall.SIGTERM && g.IgnoreTerm || g.exit.Signal != 0 {
		return
	}
	g.exit.Signal, g.exit.Code = sig, -1
	close(g.killed)
}

func (g *inProcess) End(at proc.Deadlines) (proc.Exit, error) {
	for _, step := range []struct {
		at  time.Time
		sig syscall.Signal
	}{{at.Terminate, syscall.SIGTERM}, {at.Kill, syscall.SIGKILL}, {at.GiveUp, 0}} {
		t := time.NewTimer(time.Until(step.at))
		defer t.Stop()
		select {
		case <-g.exited:
			return g.Exit(), nil
		case <-t.C:
		}
		if step.sig == syscall.SIGKILL || step.sig == syscall.SIGTERM && at.Terminate.Before(at.Kill) {
			g.signal(step.sig)
		}
	}
	select {
	case <-g.exited:
		return g.Exit(), nil
	default:
		return proc.Exit{Code: -1}, proc.ErrUnconfirmed
	}
}

// startInProcess starts a connection to a fake server in this process.
func startInProcess(t *testing.T, ctx context.Context, server lspconn.Server, b fakelsp.Behaviour) (*lspconn.Conn, *inProcess) {
	t.Helper()
	g := serveInProcess(b)
	server.Name, server.Command = "here", []string{"here"}
	conn, err := lspconn.StartWith(ctx, server, g)
	if err != nil {
		t.Fatal(err)
	}
	return conn, g
}

type (
	deadlines = proc.Deadlines
	exit      = proc.Exit
)
