package lspconn_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

var errForce = errors.New("the user is waiting")

// Force of the connection, or of a parent scope, kills the server at once, without SIGTERM.
func TestForce_KillsServerAtOnce(t *testing.T) {
	for name, force := range map[string]func(*ctxshutdown.Swansong, *lspconn.Conn){
		"program":    func(program *ctxshutdown.Swansong, _ *lspconn.Conn) { program.Force(errForce) },
		"connection": func(_ *ctxshutdown.Swansong, conn *lspconn.Conn) { conn.Force(errForce) },
	} {
		synctest.Test(t, func(t *testing.T) {
			program := ctxshutdown.New(context.Background())
			conn, _ := startInProcess(t, program, lspconn.Server{}, behaviours{Shutdown: "never", EOF: "ignore"})
			conn.Ready(t.Context())
			begin := time.Now()
			force(program, conn)
			program.Shutdown().Wait(context.Background())
			testkit.Equal(t, "time", time.Since(begin), time.Duration(0))
			r := mustClose(t, conn)
			if r.Outcome != lspconn.Killed || r.Exit.Signal != "killed" || !errors.Is(r.Failure, errForce) {
				t.Errorf("%s: %v", name, r)
			}
		})
	}
}

// Force kills a server that would answer shutdown, before the connection has sent shutdown or exit.
func TestForce_KillsServerWithoutShutdownRequest(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			conn, g := startSlow(t, lspconn.Server{}) // the server takes 100 ms to read a message
			conn.Ready(t.Context())
			time.Sleep(time.Second)
			conn.Force(errForce)
			r := mustClose(t, conn)
			if r.Outcome != lspconn.Killed || !errors.Is(r.Failure, errForce) {
				t.Errorf("%v; want a report of a killed server, with the cause", r)
			}
			time.Sleep(time.Second) // waits until a write that has begun has failed
			for _, m := range g.Received() {
				if m.Method == "shutdown" || m.Method == "exit" {
					t.Errorf("the server received %s after Force", m.Method)
				}
			}
		})
	}
}

// Force sends SIGKILL before stdin is closed, so that the server cannot end in another way.
func TestForce_SendsSIGKILLBeforeStdinIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &orderedEnd{inProcess: serveInProcess(behaviours{})}
		conn, err := lspconn.StartWith(t.Context(), lspconn.Server{Command: []string{"ordered"}}, p)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		conn.Force(errForce)
		mustClose(t, conn)
		if !p.killed.Load() || p.closedEarly.Load() {
			t.Errorf("killed: %v; stdin was closed before: %v", p.killed.Load(), p.closedEarly.Load())
		}
	})
}

// An orderedEnd is a process that records whether its stdin was closed before SIGKILL was sent. Its
// method End takes a millisecond to send SIGKILL, so a connection that does not wait for End closes
// stdin first.
type orderedEnd struct {
	*inProcess
	killed, closedEarly atomic.Bool
}

func (p *orderedEnd) Stdin() io.WriteCloser { return orderedPipe{p.inProcess.Stdin(), p} }

func (p *orderedEnd) End(at proc.Deadlines) (proc.Exit, error) {
	if !at.Kill.After(time.Now()) {
		time.Sleep(time.Millisecond)
		p.killed.Store(true)
	}
	return p.inProcess.End(at)
}

type orderedPipe struct {
	io.WriteCloser
	of *orderedEnd
}

func (p orderedPipe) Close() error {
	if !p.of.killed.Load() {
		p.of.closedEarly.Store(true)
	}
	return p.WriteCloser.Close()
}

// If Force is called while Close waits for the response to shutdown, or for the server to exit,
// Close waits no longer and kills the server.
func TestForce_KillsServerWhileCloseWaitsForIt(t *testing.T) {
	for name, b := range map[string]behaviours{
		"shutdown is not answered": {Shutdown: "never"},
		"exit is not obeyed":       {Exit: "ignore", EOF: "ignore"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, _ := startInProcess(t, t.Context(), lspconn.Server{}, b)
				conn.Ready(t.Context())
				time.AfterFunc(time.Second, func() { conn.Force(errForce) })
				r := mustClose(t, conn)
				if r.Outcome != lspconn.Killed || !errors.Is(r.Failure, errForce) {
					t.Errorf("%v; want a report of a killed server, with the cause", r)
				}
				testkit.Equal(t, "time", r.Total, time.Second)
			})
		})
	}
}

// Force cannot kill the server. The report of the connection still contains the cause of Force.
func TestForce_ReportHasItsCauseEvenIfServerCannotBeKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		undead := &unkillable{serveInProcess(behaviours{}), make(chan struct{})}
		conn, err := lspconn.StartWith(t.Context(), lspconn.Server{Name: "undead", Command: []string{"x"}}, undead)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		conn.Force(errForce)
		r, err := conn.Close(t.Context())
		if r.Outcome != lspconn.Unconfirmed || !errors.Is(err, lspconn.ErrUnconfirmed) || !errors.Is(r.Failure, errForce) {
			t.Errorf("%v, %v; want the cause of Force", r, err)
		}
		close(undead.dies)
		<-conn.Done()
	})
}

// A slowToDie is a process that ends some time after SIGKILL. Its stderr ends only when the
// connection closes it.
type slowToDie struct {
	*inProcess
	takes  time.Duration
	killed sync.Once
	stderr *io.PipeReader
}

func (s *slowToDie) Stderr() io.Reader { return s.stderr }
func (s *slowToDie) Close()            { s.inProcess.Close(); s.stderr.Close() }

func (s *slowToDie) End(at deadlines) (exit, error) {
	s.killed.Do(func() { time.AfterFunc(s.takes, func() { s.signal(syscall.SIGKILL) }) })
	select {
	case <-s.exited:
		return s.Exit(), nil
	case <-time.After(time.Until(at.GiveUp)):
		return exit{Code: -1}, lspconn.ErrUnconfirmed
	}
}

// After Force, the connection waits at most half a second for the rest of the server's output. The
// half second counts from Force and not from the end of the process. So Close returns a complete
// report within a second.
func TestClose_WaitsForOutputAtMostHalfSecondAfterForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stderr, held := io.Pipe()
		defer held.Close()
		slow := &slowToDie{inProcess: serveInProcess(behaviours{Shutdown: "never", EOF: "ignore"}), takes: 700 * time.Millisecond, stderr: stderr}
		conn, err := lspconn.StartWith(t.Context(), lspconn.Server{Name: "slow", Command: []string{"x"}}, slow)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r, err := conn.Close(ctx)
		if err != nil || r.Outcome != lspconn.Killed {
			t.Errorf("%v, %v; want a killed server", r, err)
		}
		testkit.Equal(t, "time", r.Total, 700*time.Millisecond)
		<-conn.Done()
	})
}

// If the Logger blocks, Close returns a second after its context has ended, and says how the server
// has ended.
func TestClose_ReturnsAlthoughLoggerBlocks(t *testing.T) {
	for _, message := range []string{"Closing", "ended", "Closed"} {
		t.Run(message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				conn, _ := startInProcess(t, t.Context(), lspconn.Server{Logger: at(message, func() { <-release })}, behaviours{Shutdown: "never", EOF: "ignore"})
				conn.Ready(t.Context())
				ctx, cancel := context.WithCancelCause(context.Background())
				cancel(errForce)
				begin := time.Now()
				r, err := conn.Close(ctx)
				if err != nil || r.Outcome != lspconn.Killed || r.Exit == nil || !errors.Is(r.Failure, errForce) {
					t.Errorf("%v, %v; want a killed server, with the cause", r, err)
				}
				testkit.Equal(t, "time", time.Since(begin), time.Second)
				close(release)
				<-conn.Done()
			})
		})
	}
}
