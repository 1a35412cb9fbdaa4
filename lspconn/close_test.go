package lspconn_test

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
)

type behaviours = fakelsp.Behaviour

// TestClose_ReportsHowServerEnded runs misbehaving servers in a synctest bubble, so the times are
// exact. They are fractions of the default deadline of 10 s.
func TestClose_ReportsHowServerEnded(t *testing.T) {
	for _, test := range []struct {
		name    string
		b       behaviours
		outcome lspconn.Outcome
		exit    lspconn.Exit
		phases  phases
		says    string // what the failure in the report must contain
	}{
		{"obeys shutdown and exit", behaviours{}, lspconn.Clean, lspconn.Exit{}, phases{}, ""},
		{"with an exit code", behaviours{Code: 1}, lspconn.Clean, lspconn.Exit{Code: 1}, phases{}, ""},
		{"asks before it answers shutdown", behaviours{Shutdown: "ask"}, lspconn.Clean, lspconn.Exit{}, phases{}, ""},
		{"takes EOF for exit", behaviours{Exit: "ignore"}, lspconn.Clean, lspconn.Exit{}, phases{Leave: 2 * time.Second}, ""},
		{"neither answers shutdown nor obeys exit", behaviours{Shutdown: "never", Exit: "ignore"}, lspconn.HandshakeTimeout, lspconn.Exit{}, phases{Handshake: 6 * time.Second, Leave: time.Second}, "did not answer shutdown"},
		{"ignores EOF", behaviours{EOF: "ignore"}, lspconn.Clean, lspconn.Exit{}, phases{}, ""},
		{"exits on shutdown", behaviours{Shutdown: "exit", Code: 3}, lspconn.ExitedEarly, lspconn.Exit{Code: 3}, phases{}, "exited unexpectedly: exit code 3"},
		{"breaks off within its answer", behaviours{Shutdown: "half", Code: 3}, lspconn.ExitedEarly, lspconn.Exit{Code: 3}, phases{}, "exit code 3; protocol violation by the server: output that ends after 11 of the 100 bytes"},
		{"does not answer shutdown", behaviours{Shutdown: "never"}, lspconn.HandshakeTimeout, lspconn.Exit{}, phases{Handshake: 6 * time.Second}, "did not answer shutdown"},
		{"refuses shutdown", behaviours{Shutdown: "refuse", EOF: "ignore"}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, phases{}, "refused shutdown: I would rather not (-32603)"},
		{"closes stdout instead", behaviours{Shutdown: "close", EOF: "ignore"}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, phases{Leave: time.Second / 2}, "closed its output"},
		{"ignores exit and EOF", behaviours{Exit: "ignore", EOF: "ignore"}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, phases{Leave: 8 * time.Second}, ""},
		{"ignores SIGTERM too", behaviours{Exit: "ignore", EOF: "ignore", IgnoreTerm: true}, lspconn.Killed, lspconn.Exit{Code: -1, Signal: "killed"}, phases{Leave: 9 * time.Second}, ""},
		{"refuses shutdown and ignores SIGTERM", behaviours{Shutdown: "refuse", EOF: "ignore", IgnoreTerm: true}, lspconn.Killed, lspconn.Exit{Code: -1, Signal: "killed"}, phases{Leave: time.Second}, "refused shutdown"},
		{"stops reading", behaviours{StopAfter: 2}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, phases{Drain: 2 * time.Second}, "stopped reading"},
		{"never initializes", behaviours{Initialize: "never", EOF: "ignore"}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, phases{}, ""},
		{"never initializes and ignores SIGTERM", behaviours{Initialize: "never", EOF: "ignore", IgnoreTerm: true}, lspconn.Killed, lspconn.Exit{Code: -1, Signal: "killed"}, phases{Leave: time.Second}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, g := startInProcess(t, t.Context(), lspconn.Server{}, test.b)
				if test.b.Initialize == "" {
					conn.Ready(t.Context())
				}
				if test.b.StopAfter > 0 {
					big := json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`) // one notification fills the pipe, so the write of the next one blocks until the server has read it
					for range 3 {
						go conn.Notify(context.Background(), "note", big)
					}
				}
				synctest.Wait()
				r := mustClose(t, conn)
				testkit.Equal(t, "outcome", r.Outcome, test.outcome)
				testkit.Equal(t, "exit", r.Exit, &test.exit)
				testkit.Equal(t, "time", phases{r.Drain, r.Handshake, r.Leave}, test.phases)
				testkit.Equal(t, "time of all phases", r.Total, r.Drain+r.Handshake+r.Leave)
				testkit.Equal(t, "faults", g.Faults(), []string(nil))
				if (r.Failure == nil) != (test.says == "") || r.Failure != nil && !strings.Contains(r.Failure.Error(), test.says) {
					t.Errorf("failure %v, want %q", r.Failure, test.says)
				}
				if test.b.Initialize == "never" { // LSP forbids messages before the response to initialize
					for _, m := range g.Received()[1:] {
						t.Errorf("%s was sent to a server that had not answered initialize", m.Method)
					}
				}
			})
		})
	}
}

// phases contains the durations of the steps of closing a connection.
type phases struct{ Drain, Handshake, Leave time.Duration }

// Output that the server writes after its exit is in the report, and the pipes are closed once all
// of it has been read.
func TestClose_ReportHasOutputThatServerWroteAtItsExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveInProcess(behaviours{})
		c := &lateOutput{g, io.MultiReader(delayedEOF{g.exited}, strings.NewReader("and one more thing\n")), make(chan struct{})}
		conn, err := lspconn.StartWith(t.Context(), lspconn.Server{Name: "lateOutput", Command: []string{"x"}}, c)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		testkit.Equal(t, "stderr", mustClose(t, conn).Stderr, "and one more thing\n")
		<-conn.Done()
		select {
		case <-c.closed:
		default:
			t.Error("the connection has not closed the pipe")
		}
	})
}

// A lateOutput writes to stderr one second after the server itself has exited, as a child process
// that shares stderr does.
type lateOutput struct {
	*inProcess
	stderr io.Reader
	closed chan struct{}
}

func (c *lateOutput) Stderr() io.Reader { return c.stderr }
func (c *lateOutput) Close()            { c.inProcess.Close(); close(c.closed) }

// A delayedEOF is a pipe that returns io.EOF one second after its channel has become ready.
type delayedEOF struct{ happens <-chan struct{} }

func (a delayedEOF) Read([]byte) (int, error) {
	<-a.happens
	time.Sleep(time.Second)
	return 0, io.EOF
}

// Close writes queued messages in order before shutdown, and discards them if Discard is set. It
// discards notifications of NotifyLatest at the end of the queue in both cases.
func TestClose_WritesQueuedMessagesUnlessDiscardIsSet(t *testing.T) {
	for name, discard := range map[string]bool{"without Discard": false, "with Discard": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, g := startSlow(t, lspconn.Server{Discard: discard})
				conn.Ready(t.Context())
				time.Sleep(time.Second) // wait until the notification initialized has been written
				errs := make([]error, 10)
				var callers sync.WaitGroup
				for i := range errs {
					callers.Go(func() {
						errs[i] = conn.Notify(context.Background(), "note", json.RawMessage(fmt.Sprint(i)))
					})
					synctest.Wait() // wait, so that the notifications are queued in this order
				}
				latest := conn.NotifyLatest("k", "note", json.RawMessage(`"latest"`))
				r := mustClose(t, conn)
				callers.Wait()
				testkit.Equal(t, "outcome", r.Outcome, lspconn.Clean)
				if err := latest.Wait(t.Context()); !errors.Is(err, lspconn.ErrClosing) {
					t.Errorf("outcome of the notification of NotifyLatest: %v", err)
				}
				var got []string
				for _, m := range g.Received() {
					got = append(got, m.Method+string(m.Params))
				}
				want := []string{fmt.Sprintf(`initialize{"processId":%d,"rootUri":null,"capabilities":{}}`, os.Getpid()), "initialized{}"}
				for i, err := range errs {
					// The first notification was already being written, so it is written completely
					// in both cases.
					if (err == nil) != (!discard || i == 0) || err != nil && !errors.Is(err, lspconn.ErrClosing) {
						t.Errorf("outcome of notification %d: %v", i, err)
					}
					if err == nil {
						want = append(want, fmt.Sprintf("note%d", i))
					}
				}
				testkit.Equal(t, "seen", got, append(want, "shutdown", "exit"))
			})
		})
	}
}

// A slowReader is a server that takes some time to read each message, during which the write of the
// message blocks.
type slowReader struct {
	*inProcess
	each time.Duration
}

// startSlow starts a connection whose writes take 100 ms each.
func startSlow(t *testing.T, server lspconn.Server) (*lspconn.Conn, *inProcess) {
	t.Helper()
	g := serveInProcess(behaviours{})
	server.Name, server.Command = "slow", []string{"slow"}
	conn, err := lspconn.StartWith(t.Context(), server, &slowReader{g, 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return conn, g
}

func (s *slowReader) Stdin() io.WriteCloser { return slowPipe{s} }

type slowPipe struct{ *slowReader }

func (p slowPipe) Write(b []byte) (int, error) { time.Sleep(p.each); return p.stdin.Write(b) }
func (p slowPipe) Close() error                { return p.stdin.Close() }

// Calls that are pending when the connection closes return no later than the process ends.
func TestClose_FailsPendingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{Exit: "ignore", EOF: "ignore"})
		conn.Ready(t.Context())
		answers := make(chan error)
		go func() {
			_, err := conn.Call(context.Background(), "never", nil)
			answers <- err
		}()
		synctest.Wait()
		begin := time.Now()
		go conn.Close(context.Background())
		err := <-answers
		var closing *lspconn.ConnError
		var response *lspconn.ResponseError
		if !errors.As(err, &closing) || closing.Method != "never" || !errors.As(err, &response) || response.Code != lspconn.CodeRequestFailed {
			t.Errorf("%#v, want a ConnError with CodeRequestFailed", err)
		}
		testkit.Equal(t, "time", time.Since(begin), 8*time.Second) // the calls return when the server receives SIGTERM
	})
}

// A server may answer pending calls until the server exits.
func TestClose_PendingCallsReceiveResponsesUntilServerExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan string, 1)
		release := make(chan struct{})
		server := lspconn.Server{OnRequest: func(context.Context, string, json.RawMessage) (any, error) {
			<-release
			return "late", nil
		}}
		conn, _ := startInProcess(t, t.Context(), server, behaviours{Shutdown: "ask"})
		conn.Ready(t.Context())
		go func() {
			result, err := conn.Call(context.Background(), "ask", nil)
			answered <- fmt.Sprint(string(result), err)
		}()
		synctest.Wait()
		reports := make(chan lspconn.Report, 1)
		go func() { reports <- mustClose(t, conn) }()
		synctest.Wait()
		testkit.Equal(t, "state", conn.State(), lspconn.Closing)
		release <- struct{}{} // lets the handler answer the request that is queued behind the pending call
		testkit.Equal(t, "answer", <-answered, `"late"<nil>`)
		close(release) // lets the handler answer the request that the server sends before it answers shutdown
		testkit.Equal(t, "outcome", (<-reports).Outcome, lspconn.Clean)
	})
}

// Concurrent calls of Close return the same report.
func TestClose_ConcurrentCallsReturnSameReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{Shutdown: "never"})
		conn.Ready(t.Context())
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { testkit.Equal(t, "total", mustClose(t, conn).Total, 6*time.Second) })
		}
		all.Wait()
		testkit.Equal(t, "total", mustClose(t, conn).Total, 6*time.Second)
	})
}

// When the context of Close ends, or if it had ended before, Close kills the server and still
// returns the report. Other calls of Close return the same report.
func TestClose_KillsServerWhenContextEnds(t *testing.T) {
	errHurry := errors.New("the program has no more time")
	for _, after := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			conn, _ := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{Shutdown: "never", Exit: "ignore", EOF: "ignore", IgnoreTerm: true})
			conn.Ready(t.Context())
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(after, func() { cancel(errHurry) })
			if after == 0 {
				<-ctx.Done()
			}
			reports := make(chan lspconn.Report, 2)
			for _, ctx := range []context.Context{ctx, context.Background()} {
				go func() {
					r, err := conn.Close(ctx)
					if err != nil {
						t.Error(err)
					}
					reports <- r
				}()
			}
			first, second := <-reports, <-reports
			testkit.Equal(t, "outcome", first.Outcome, lspconn.Killed)
			testkit.Equal(t, "time", first.Total, after)
			testkit.Equal(t, "report of the other call", second.String(), first.String())
			if !errors.Is(first.Failure, errHurry) {
				t.Errorf("the report does not say why the server was killed: %v", first)
			}
		})
	}
}

// If the context of Close had ended before, Close calls Force before it stops the connection in
// another way. Otherwise the outcome would be a matter of chance, because a fast server can exit
// before Force is called.
func TestClose_ForcesFirstIfContextHasEnded(t *testing.T) {
	errHurry := errors.New("the program has no more time")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errHurry)
	// Repeat the test: a Close that does not call Force first can have the right cause by chance,
	// but rarely 20 times in a row.
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			conn, _ := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{})
			conn.Ready(t.Context())
			conn.Close(ctx)
			testkit.Equal(t, "cause of the stop", context.Cause(conn.Scope()).Error(), errHurry.Error())

			m, _ := inProcessManager(t)
			conn = mustConn(t, m, "key")
			conn.Ready(t.Context())
			m.Close(ctx)
			testkit.Equal(t, "cause of the stop by the manager", context.Cause(conn.Scope()).Error(), errHurry.Error())
		})
	}
}

// A program that is stopping defers Close with its own context, which has ended. When Close
// returns, even a real server that ignores all requests to exit has ended.
func TestClose_IfContextHasEndedLeavesNoProcess(t *testing.T) {
	t.Cleanup(lspconn.SetForceTimeout(20 * time.Second)) // on a busy machine, the end of a process can be seen a second late
	program, stop := context.WithCancel(t.Context())
	server := fake(role{Behaviour: behaviours{Shutdown: "never", Exit: "ignore", EOF: "ignore", IgnoreTerm: true}})
	server.Env = append(server.Env, "LSPCONN_TEST_PROCESS="+crand.Text())
	conn, err := lspconn.Start(program, server)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Ready(program); err != nil {
		t.Fatal(err)
	}
	stop()
	r, err := conn.Close(program)
	if err != nil || r.Outcome != lspconn.Killed {
		t.Errorf("%v, %v", r, err)
	}
	checkNoneLeft(t, server)
}

// If the server cannot be killed, Close returns a second after its context has ended.
func TestClose_ReturnsOneSecondAfterContextEndsIfServerCannotBeKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		undead := &unkillable{serveInProcess(behaviours{}), make(chan struct{})}
		conn, err := lspconn.StartWith(t.Context(), lspconn.Server{Name: "undead", Command: []string{"x"}}, undead)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		begin := time.Now()
		r, err := conn.Close(ctx)
		if !errors.Is(err, lspconn.ErrUnconfirmed) || !errors.Is(err, context.Canceled) || r.Outcome != lspconn.Unconfirmed {
			t.Errorf("%v, %v", r, err)
		}
		testkit.Equal(t, "time", time.Since(begin), time.Second)
		close(undead.dies)
		<-conn.Done()
	})
}

// A stop of the parent scope closes the connection, and the completion of the parent waits for the
// process.
func TestConn_ClosesWhenParentScopeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := ctxshutdown.New(context.Background(), ctxshutdown.WithName("editor"))
		conn, _ := startInProcess(t, program, lspconn.Server{}, behaviours{Shutdown: "never"})
		conn.Ready(t.Context())
		go conn.Call(context.Background(), "never", nil)
		synctest.Wait()
		drained := program.Shutdown()
		if _, err := conn.Call(context.Background(), "echo", nil); !errors.Is(err, lspconn.ErrClosing) {
			t.Errorf("a call after the stop returned %v", err)
		}
		synctest.Wait()
		testkit.Equal(t, "report", program.GuardReport().String(), "3 guards: editor/here/calls ×2, editor/here/process ×1")
		begin := time.Now()
		if err := drained.Wait(context.Background()); err != nil {
			t.Error(err)
		}
		testkit.Equal(t, "time", time.Since(begin), 6*time.Second)
		testkit.Equal(t, "state", conn.State(), lspconn.Closed)
	})
}

// The report names the signal that ended the server, even if both SIGTERM and SIGKILL were sent.
func TestClose_NamesSignalThatEndedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveInProcess(behaviours{Shutdown: "refuse", EOF: "ignore"})
		conn, err := lspconn.StartWith(t.Context(), lspconn.Server{Name: "slow", Command: []string{"x"}}, &slowToExit{g})
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Terminated)
	})
}

// A slowToExit is a process that ends because of SIGTERM, but so slowly that SIGKILL is sent too.
type slowToExit struct{ *inProcess }

func (s *slowToExit) End(at deadlines) (exit, error) {
	e, err := s.inProcess.End(at)
	e.Killed = true
	return e, err
}

// A process that cannot be killed is reported as unconfirmed at the deadline. The connection
// becomes Closed later, when the process has been reaped.
func TestClose_AtDeadlineReportsServerThatCannotBeKilledAsUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveInProcess(behaviours{})
		unkillable := &unkillable{g, make(chan struct{})}
		conn, err := lspconn.StartWith(t.Context(), lspconn.Server{Name: "undead", Command: []string{"x"}}, unkillable)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		begin := time.Now()
		r, err := conn.Close(t.Context())
		if !errors.Is(err, lspconn.ErrUnconfirmed) || r.Outcome != lspconn.Unconfirmed || r.Exit != nil {
			t.Errorf("%v, %v", r, err)
		}
		testkit.Equal(t, "time", time.Since(begin), 10*time.Second)
		testkit.Equal(t, "state", conn.State(), lspconn.Closing)
		testkit.Equal(t, "guards", conn.Scope().GuardReport().String(), "1 guard: undead/process ×1")
		close(unkillable.dies)
		<-conn.Done()
		testkit.Equal(t, "state", conn.State(), lspconn.Closed)
		var late *lspconn.ConnError
		if _, err := conn.Call(t.Context(), "echo", nil); !errors.As(err, &late) || late.Exit == nil {
			t.Errorf("the error of a call after the exit does not contain the exit status: %v", err)
		}
	})
}

// An unkillable is a process that ends only when the test makes it end.
type unkillable struct {
	*inProcess
	dies chan struct{}
}

func (i *unkillable) Exited() <-chan struct{} { return i.dies }
func (i *unkillable) Done() <-chan struct{}   { return i.dies }

func (i *unkillable) End(at deadlines) (exit, error) {
	select {
	case <-i.dies:
		return i.inProcess.Exit(), nil
	case <-time.After(time.Until(at.GiveUp)):
		return exit{Code: -1}, lspconn.ErrUnconfirmed
	}
}

// TestClose_EndsMisbehavingRealProcesses closes real processes: processes that write very much to
// stderr, whose grandchildren keep the pipes open, or that do other things that an in-process
// server cannot imitate.
func TestClose_EndsMisbehavingRealProcesses(t *testing.T) {
	for _, test := range []struct {
		name    string
		role    role
		outcome lspconn.Outcome
		linux   bool
	}{
		{"obeys shutdown and exit", role{}, lspconn.Clean, false},
		{"exit code 1", role{Behaviour: behaviours{Code: 1}}, lspconn.Clean, false},
		{"a flood of stderr", role{Flood: 3_000_000}, lspconn.Clean, false},
		{"leaves a child that ignores SIGTERM", role{Child: "fork"}, lspconn.Clean, false},
		{"leaves a child in another session", role{Child: "setsid"}, lspconn.Clean, true},
		{"leaves a child that has forked twice", role{Child: "twice"}, lspconn.Clean, true},
		{"is terminated, and leaves a child that has forked twice", role{Behaviour: behaviours{Shutdown: "refuse", EOF: "ignore"}, Child: "twice"}, lspconn.Terminated, true},
		{"refuses shutdown", role{Behaviour: behaviours{Shutdown: "refuse", EOF: "ignore"}}, lspconn.Terminated, false},
		{"refuses shutdown and ignores SIGTERM, with a child", role{Behaviour: behaviours{Shutdown: "refuse", EOF: "ignore", IgnoreTerm: true}, Child: "setsid"}, lspconn.Killed, true},
		{"exits on shutdown", role{Behaviour: behaviours{Shutdown: "exit"}}, lspconn.ExitedEarly, false},
		{"stops reading", role{Behaviour: behaviours{StopAfter: 3}}, lspconn.Terminated, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.linux && runtime.GOOS != "linux" {
				t.Skip("only Linux can find processes that have left the process group")
			}
			t.Parallel()
			server := fake(test.role)
			server.Env = append(server.Env, "LSPCONN_TEST_PROCESS="+crand.Text())
			conn := startReady(t, server)
			if test.role.StopAfter > 0 { // send until the server has stopped reading and the pipe is full
				big := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
				for range 4 {
					go conn.Notify(context.Background(), "note", big)
				}
				for conn.Scope().GuardCount() < 4 {
					runtime.Gosched()
				}
			} else {
				testkit.Equal(t, "echo", call(t, conn, "echo", `[1]`), `[1]`)
			}
			r := mustClose(t, conn)
			if r.Outcome != test.outcome || len(r.Survivors) > 0 {
				t.Errorf("%v, want %v and no survivor", r, test.outcome)
			}
			checkNoneLeft(t, server)
			if test.role.Child != "" && test.outcome == lspconn.Clean && runtime.GOOS == "linux" && len(r.Left) != 1 {
				t.Errorf("processes left when the server exited: %v, want 1", r.Left)
			}
		})
	}
}

// TestConn_SendersLearnCorrectlyWhatRealServerReceived runs random histories as
// TestConn_SendersLearnCorrectlyWhatServerReceived does, but with real processes and in real time,
// so the histories are fewer and shorter.
func TestConn_SendersLearnCorrectlyWhatRealServerReceived(t *testing.T) {
	n := 200
	if testing.Short() {
		n = 20
	}
	dir := t.TempDir()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range n {
		log := filepath.Join(dir, fmt.Sprint(i))
		conn := start(t, fake(role{Log: log}))
		var all sync.WaitGroup
		var answered, written int
		var mu sync.Mutex
		for range 4 {
			all.Go(func() {
				for range 10 {
					err := conn.Notify(t.Context(), "note", nil)
					mu.Lock()
					answered++
					if err == nil {
						written++
					} else if !errors.Is(err, lspconn.ErrClosing) {
						t.Error(err)
					}
					mu.Unlock()
					if result, err := conn.Call(t.Context(), "echo", []byte("[1]")); err == nil && string(result) != "[1]" {
						t.Errorf("unexpected answer %s", result)
					}
				}
			})
		}
		if r.IntN(2) == 0 {
			conn.Ready(t.Context())
		}
		for range r.IntN(2000) {
			runtime.Gosched()
		}
		report := mustClose(t, conn)
		all.Wait()
		testkit.Equal(t, "answers", answered, 40)
		text, err := os.ReadFile(log)
		if report.Outcome != lspconn.Clean { // if the server had not answered initialize, its end need not be clean
			continue
		}
		if err != nil || strings.Contains(string(text), "FAULT") || strings.Count(string(text), "note\n") != written {
			t.Fatalf("%d notifications were written, but the server received (%v):\n%s", written, err, text)
		}
	}
}

// After a crash, pending calls fail with an error that contains the exit status and stderr. The
// connection stays Failed until it is closed.
func TestConn_CallsFailWhenServerCrashes(t *testing.T) {
	conn := startReady(t, fake(role{Behaviour: behaviours{Code: 3, Stderr: "first line\npanic: at the disco\n"}}))
	_, err := conn.Call(t.Context(), "die", nil)
	var failed *lspconn.ConnError
	var exited *lspconn.ExitError
	if !errors.As(err, &failed) || !errors.As(err, &exited) || !errors.Is(err, lspconn.ErrClosing) {
		t.Fatalf("%#v", err)
	}
	testkit.Equal(t, "error", err.Error(), `lspconn: fake: die: connection failed: the server exited unexpectedly: exit code 3; stderr: "panic: at the disco"`)
	testkit.Equal(t, "stderr", failed.Stderr, "first line\npanic: at the disco\n")
	<-conn.Done()
	testkit.Equal(t, "state", conn.State(), lspconn.Failed)
	if _, err := conn.Call(t.Context(), "echo", nil); !errors.As(err, &exited) {
		t.Errorf("a call after the crash returned %v", err)
	}
	r := mustClose(t, conn)
	testkit.Equal(t, "outcome", r.Outcome, lspconn.ExitedEarly)
	testkit.Equal(t, "exit", r.Exit, &lspconn.Exit{Code: 3})
	testkit.Equal(t, "stderr of the report", r.Stderr, "first line\npanic: at the disco\n")
	contains(t, r.Failure, "the server exited unexpectedly: exit code 3")
}

// Output that violates the protocol fails the connection with a specific error and ends the
// process.
func TestConn_FailsOnProtocolViolation(t *testing.T) {
	for _, test := range []struct{ method, says string }{
		{"garbage", "protocol violation by the server: a header without Content-Length"},
		{"header", "protocol violation by the server: a header line longer than 8192 bytes"},
		{"headers", "protocol violation by the server: a header longer than 32768 bytes"},
		{"negative", `protocol violation by the server: an invalid length: "Content-Length: -1"`},
		{"huge", "protocol violation by the server: a message of 999999999999 bytes; the limit is 268435456"},
		{"json", `protocol violation by the server: a message that is not valid JSON, "{\"jsonrpc\":": unexpected end of JSON input`},
		{"half", "exited unexpectedly: exit code 0; protocol violation by the server: output that ends after 11 of the 100 bytes of a message"},
	} {
		t.Run(test.method, func(t *testing.T) {
			t.Parallel()
			conn := startReady(t, fake(role{Behaviour: behaviours{EOF: "ignore"}}))
			_, err := conn.Call(t.Context(), test.method, nil)
			if !errors.Is(err, lspconn.ErrClosing) {
				t.Fatalf("%v", err)
			}
			contains(t, err, test.says)
			var broken *lspconn.ProtocolError
			if !errors.As(err, &broken) {
				t.Errorf("the error %T does not wrap a ProtocolError", err)
			}
			<-conn.Done() // the process is reaped without a call of Close
			testkit.Equal(t, "state", conn.State(), lspconn.Failed)
		})
	}
}

// A failed connection sends no more messages, reaps its process without a call of Close, and stays
// Failed.
func TestConn_StaysFailedUntilClosed(t *testing.T) {
	for _, test := range []struct {
		name string
		b    behaviours
		want []string
	}{
		{"garbage", behaviours{EOF: "ignore"}, []string{"initialize", "initialized", "garbage"}},
		{"refuses initialize", behaviours{Initialize: "refuse", EOF: "ignore"}, []string{"initialize"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, g := startInProcess(t, t.Context(), lspconn.Server{}, test.b)
				begin := time.Now()
				if _, err := conn.Call(context.Background(), "garbage", nil); !errors.Is(err, lspconn.ErrClosing) {
					t.Errorf("%v", err)
				}
				<-conn.Done()
				testkit.Equal(t, "time", time.Since(begin), time.Duration(0))
				testkit.Equal(t, "state", conn.State(), lspconn.Failed)
				select {
				case <-g.exited:
				default:
					t.Error("the process is still running")
				}
				var methods []string
				for _, m := range g.Received() {
					methods = append(methods, m.Method)
				}
				testkit.Equal(t, "seen", methods, test.want)
				testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Terminated)
			})
		})
	}
}

// TestConn_FailsWhenInitializeFails starts servers that fail before they have answered initialize.
func TestConn_FailsWhenInitializeFails(t *testing.T) {
	for _, test := range []struct {
		name string
		role role
		says string
	}{
		{"exits at once", role{Text: " ", Behaviour: behaviours{Code: 4, Stderr: "no license\n"}}, `; stderr: "no license"`},
		{"speaks garbage", role{Text: "Hello, I am a server.\n"}, `a line that is not a header: "Hello, I am a server."`},
		{"exits on initialize", role{Behaviour: behaviours{Initialize: "exit"}}, "exited unexpectedly: exit code 0"},
		{"refuses", role{Behaviour: behaviours{Initialize: "refuse"}}, "refused initialize: not in the mood (-32603)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn := start(t, fake(test.role))
			errs := make(chan error)
			go func() { // Ready blocks until the server is ready
				_, err := conn.Call(context.Background(), "echo", nil)
				errs <- err
			}()
			_, err := conn.Ready(t.Context())
			if err == nil {
				t.Fatal("the connection is ready, but initialize should have failed")
			}
			err = <-errs
			if !errors.Is(err, lspconn.ErrClosing) {
				t.Errorf("a call returned %v", err)
			}
			<-conn.Done()
			contains(t, conn.Err(), test.says)
		})
	}
	t.Run("takes too long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			conn, _ := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{Initialize: "never"})
			begin := time.Now()
			_, err := conn.Ready(t.Context())
			contains(t, err, "did not answer initialize within 1m0s")
			testkit.Equal(t, "time", time.Since(begin), time.Minute)
			mustClose(t, conn)
		})
	})
}

func TestStart_RejectsBadInput(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		server lspconn.Server
		is     error
		says   string
	}{
		{"no command", lspconn.Server{}, nil, "Server.Command is empty"},
		{"not found", lspconn.Server{Command: []string{"swansong-no-such-server"}}, exec.ErrNotFound, "swansong-no-such-server"},
		{"not executable", lspconn.Server{Command: []string{plain}}, fs.ErrPermission, "plain"},
		{"no directory", lspconn.Server{Command: []string{os.Args[0]}, Dir: plain + "/none"}, nil, "in its directory"},
		{"initialize", lspconn.Server{Command: []string{"x"}, Initialize: []byte("{")}, nil, `Server.Initialize is not valid JSON: "{"`},
		{"too short", lspconn.Server{Command: []string{"x"}, CloseTimeout: time.Second - 1}, nil, "Server.CloseTimeout is 999.999999ms; it must be between 1s and 15s"},
		{"too long", lspconn.Server{Command: []string{"x"}, CloseTimeout: 16 * time.Second}, nil, "it must be between 1s and 15s"},
		{"negative", lspconn.Server{Command: []string{"x"}, QueueLimit: -1}, nil, "must not be negative"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := lspconn.Start(t.Context(), test.server)
			contains(t, err, test.says)
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("too late"))
	_, err := lspconn.Start(ctx, fake(role{}))
	contains(t, err, "was not started: too late")
}

// With the shortest deadline (1 s), a server that ignores all requests and SIGTERM is killed after
// 0.8 s.
func TestClose_KillsServerWithinDeadlineOfOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := startInProcess(t, t.Context(), lspconn.Server{CloseTimeout: time.Second},
			behaviours{Shutdown: "never", EOF: "ignore", Exit: "ignore", IgnoreTerm: true})
		if _, err := conn.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		r, err := conn.Close(t.Context())
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "outcome", r.Outcome, lspconn.Killed)
		testkit.Equal(t, "time until SIGKILL", time.Since(begin), 800*time.Millisecond)
	})
}

// A closedStdin is a process that refuses the message "x": the write fails with EPIPE, as if the
// server had closed its stdin. The process exits 300 ms later.
type closedStdin struct{ *inProcess }

func (d *closedStdin) Stdin() io.WriteCloser { return deafPipe{d} }

type deafPipe struct{ *closedStdin }

func (p deafPipe) Close() error { return p.stdin.Close() }

func (p deafPipe) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte(`"x"`)) {
		return p.stdin.Write(b)
	}
	time.AfterFunc(300*time.Millisecond, func() { p.stdin.Write(lspconn.Frame(99, "die", nil)) })
	return 0, syscall.EPIPE
}

// If the connection notices a crash because a write fails, its error reports the crash, and does
// not say that the connection was closed.
func TestConn_ReportsCrashThatFailedWriteReveals(t *testing.T) {
	for _, test := range []struct {
		name string
		send func(*lspconn.Conn) error
	}{
		{"a notification", func(c *lspconn.Conn) error { return c.Notify(context.Background(), "x", nil) }},
		{"a call", func(c *lspconn.Conn) error { _, err := c.Call(context.Background(), "x", nil); return err }},
		{"a coalesced notification", func(c *lspconn.Conn) error { return c.NotifyLatest("k", "x", nil).Wait(context.Background()) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := lspconn.Server{Name: "closedStdin", Command: []string{"closedStdin"}}
				conn, err := lspconn.StartWith(t.Context(), server, &closedStdin{serveInProcess(behaviours{Code: 3})})
				if err != nil {
					t.Fatal(err)
				}
				conn.Ready(t.Context())
				synctest.Wait()
				err = test.send(conn)
				var failed *lspconn.ConnError
				var exited *lspconn.ExitError
				if !errors.As(err, &failed) || failed.State != lspconn.Failed || !errors.As(err, &exited) || exited.Exit.Code != 3 {
					t.Errorf("%#v", err)
				}
				testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.ExitedEarly)
				testkit.Equal(t, "guards", conn.Scope().GuardCount(), 0)
			})
		})
	}
	// If the context of Call ends before the connection fails, Call returns the cause of the
	// context.
	synctest.Test(t, func(t *testing.T) {
		server := lspconn.Server{Name: "closedStdin", Command: []string{"closedStdin"}}
		conn, err := lspconn.StartWith(t.Context(), server, &closedStdin{serveInProcess(behaviours{Code: 3})})
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		errs := make(chan error)
		go func() { errs <- conn.Notify(ctx, "x", nil) }()
		go func() { _, err := conn.Call(ctx, "x", nil); errs <- err }()
		for range 2 {
			if err := <-errs; err != context.DeadlineExceeded {
				t.Errorf("%v", err)
			}
		}
		mustClose(t, conn)
		testkit.Equal(t, "guards", conn.Scope().GuardCount(), 0)
	})
}

// A slowExit is a process to which writing the exit notification takes one second.
type slowExit struct {
	*inProcess
	mu      sync.Mutex
	written []string
}

func (s *slowExit) Stdin() io.WriteCloser { return slowExitPipe{s} }

type slowExitPipe struct{ *slowExit }

func (p slowExitPipe) Close() error { return p.stdin.Close() }

func (p slowExitPipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	p.written = append(p.written, string(b))
	p.mu.Unlock()
	if bytes.Contains(b, []byte(`"exit"`)) {
		time.Sleep(time.Second)
	}
	return p.stdin.Write(b)
}

// A response to a request of the server is not written if it becomes ready while exit is being
// written.
func TestClose_WritesNoResponseAfterExitNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		link := &slowExit{inProcess: serveInProcess(behaviours{})}
		conn, err := lspconn.StartWith(t.Context(), lspconn.Server{Name: "slow", Command: []string{"slow"},
			OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
				lspconn.Async(ctx)
				<-release
				return "late", nil
			}}, link)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		go conn.Call(context.Background(), "ask", nil)
		synctest.Wait()
		time.AfterFunc(time.Second/2, func() { close(release) }) // at this time, Close is writing the exit notification
		mustClose(t, conn)
		synctest.Wait()
		if last := link.written[len(link.written)-1]; !strings.Contains(last, `"exit"`) {
			t.Errorf("the server received %s after exit", last)
		}
	})
}

// The deadline of a Close counts from the call of Close, even while the connection is still
// determining why it failed.
func TestClose_DeadlineBeginsAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &unkillable{serveInProcess(behaviours{}), make(chan struct{})}
		conn, err := lspconn.StartWith(t.Context(), lspconn.Server{Name: "stuck", Command: []string{"x"}}, stuck)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		conn.Notify(t.Context(), "die", nil) // the server closes its pipes but keeps running
		synctest.Wait()
		begin := time.Now()
		if _, err := conn.Close(t.Context()); !errors.Is(err, lspconn.ErrUnconfirmed) {
			t.Errorf("%v", err)
		}
		testkit.Equal(t, "time", time.Since(begin), 10*time.Second)
		close(stuck.dies)
		<-conn.Done()
	})
}

// The Logger's handler may call State, because the connection holds no lock while it logs.
func TestLogger_MayCallState(t *testing.T) {
	for _, test := range []struct {
		call string
		want []string
	}{
		{"twice", []string{"Ready", "Ready: ignored a response: its call has been answered or cancelled", "Closing", "Closing: ended", "Closed"}},
		{"die", []string{"Ready", "Failed", "Failed: ended", "Closed"}},
	} {
		t.Run(test.call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var conn *lspconn.Conn
				var mu sync.Mutex // a lock is needed, because the read loop logs at the same time
				var got []string
				made := make(chan struct{})
				log := slog.New(handler(func(r slog.Record) {
					<-made
					// conn.State would deadlock if the connection held its lock while it logs.
					line := conn.State().String()
					if message := strings.TrimPrefix(r.Message, "lspconn: "); message != line {
						line += ": " + message
					}
					mu.Lock()
					defer mu.Unlock()
					got = append(got, line)
				}))
				conn, _ = startInProcess(t, t.Context(), lspconn.Server{Logger: log}, behaviours{})
				close(made)
				conn.Ready(t.Context())
				conn.Call(t.Context(), test.call, nil)
				time.Sleep(time.Second) // the second response arrives after the first
				mustClose(t, conn)
				mu.Lock()
				defer mu.Unlock()
				testkit.Equal(t, "log", got, test.want)
			})
		})
	}
}

// The report that the Logger receives contains the panic of a callback.
func TestLogger_ReceivesReportThatNamesPanicOfCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got string
		log := slog.New(handler(func(r slog.Record) {
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == "report" {
					got = a.Value.Resolve().String()
				}
				return true
			})
		}))
		server := lspconn.Server{Logger: log, OnNotify: func(context.Context, string, json.RawMessage) { panic("at the disco") }}
		conn, _ := startInProcess(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		conn.Call(t.Context(), "notes", json.RawMessage("1"))
		synctest.Wait()
		mustClose(t, conn)
		if !strings.Contains(got, "at the disco") {
			t.Errorf("the Logger received the report %q", got)
		}
	})
}

// A handler is a slog.Handler that calls a function.
type handler func(slog.Record)

func (h handler) Enabled(context.Context, slog.Level) bool      { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }
