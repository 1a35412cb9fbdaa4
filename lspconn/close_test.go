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
	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
)

type behaviours = fakelsp.Behaviour

// In a bubble: what a server does, and how and when that ends. Times are exact, and of the default deadline of 10 s.
func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		name    string
		b       behaviours
		outcome lspconn.Outcome
		exit    lspconn.Exit
		took    took
		says    string // the report's failure
	}{
		{"polite", behaviours{}, lspconn.Clean, lspconn.Exit{}, took{}, ""},
		{"with an exit code", behaviours{Code: 1}, lspconn.Clean, lspconn.Exit{Code: 1}, took{}, ""},
		{"asks before it answers shutdown", behaviours{Shutdown: "ask"}, lspconn.Clean, lspconn.Exit{}, took{}, ""},
		{"takes EOF for exit", behaviours{Exit: "ignore"}, lspconn.Clean, lspconn.Exit{}, took{Leave: 2 * time.Second}, ""},
		{"neither answers shutdown nor obeys exit", behaviours{Shutdown: "never", Exit: "ignore"}, lspconn.HandshakeTimeout, lspconn.Exit{}, took{Handshake: 6 * time.Second, Leave: time.Second}, "not answered shutdown"},
		{"ignores EOF", behaviours{EOF: "ignore"}, lspconn.Clean, lspconn.Exit{}, took{}, ""},
		{"exits on shutdown", behaviours{Shutdown: "exit", Code: 3}, lspconn.ExitedEarly, lspconn.Exit{Code: 3}, took{}, "ended by itself: exit code 3"},
		{"breaks off within its answer", behaviours{Shutdown: "half", Code: 3}, lspconn.ExitedEarly, lspconn.Exit{Code: 3}, took{}, "exit code 3; the server broke the protocol: its output ends after 11 of the 100 bytes"},
		{"does not answer shutdown", behaviours{Shutdown: "never"}, lspconn.HandshakeTimeout, lspconn.Exit{}, took{Handshake: 6 * time.Second}, "not answered shutdown"},
		{"refuses shutdown", behaviours{Shutdown: "refuse", EOF: "ignore"}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, took{}, "refuses shutdown: I would rather not (-32603)"},
		{"closes stdout instead", behaviours{Shutdown: "close", EOF: "ignore"}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, took{Leave: time.Second / 2}, "closed its output"},
		{"ignores exit and EOF", behaviours{Exit: "ignore", EOF: "ignore"}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, took{Leave: 8 * time.Second}, ""},
		{"ignores SIGTERM too", behaviours{Exit: "ignore", EOF: "ignore", IgnoreTerm: true}, lspconn.Killed, lspconn.Exit{Code: -1, Signal: "killed"}, took{Leave: 9 * time.Second}, ""},
		{"refuses shutdown and ignores SIGTERM", behaviours{Shutdown: "refuse", EOF: "ignore", IgnoreTerm: true}, lspconn.Killed, lspconn.Exit{Code: -1, Signal: "killed"}, took{Leave: time.Second}, "refuses shutdown"},
		{"stops reading", behaviours{StopAfter: 2}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, took{Drain: 2 * time.Second}, "stopped reading"},
		{"never initializes", behaviours{Initialize: "never", EOF: "ignore"}, lspconn.Terminated, lspconn.Exit{Code: -1, Signal: "terminated"}, took{}, ""},
		{"never initializes and ignores SIGTERM", behaviours{Initialize: "never", EOF: "ignore", IgnoreTerm: true}, lspconn.Killed, lspconn.Exit{Code: -1, Signal: "killed"}, took{Leave: time.Second}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, g := here(t, t.Context(), lspconn.Server{}, test.b)
				if test.b.Initialize == "" {
					conn.Ready(t.Context())
				}
				if test.b.StopAfter > 0 {
					big := json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`) // one at a time is written
					for range 3 {
						go conn.Notify(context.Background(), "note", big)
					}
				}
				synctest.Wait()
				r := closed(t, conn)
				equal(t, "outcome", test.outcome, r.Outcome)
				equal(t, "exit", &test.exit, r.Exit)
				equal(t, "time", test.took, took{r.Drain, r.Handshake, r.Leave})
				equal(t, "time of all phases", r.Drain+r.Handshake+r.Leave, r.Total)
				equal(t, "faults", []string(nil), g.Faults())
				if (r.Failure == nil) != (test.says == "") || r.Failure != nil && !strings.Contains(r.Failure.Error(), test.says) {
					t.Errorf("failure %v, want %q", r.Failure, test.says)
				}
				if test.b.Initialize == "never" { // LSP allows no message before the response
					for _, m := range g.Seen()[1:] {
						t.Errorf("%s was sent while it was initializing", m.Method)
					}
				}
			})
		})
	}
}

// took is how long a closing has taken, by phase.
type took struct{ Drain, Handshake, Leave time.Duration }

// What a server says while it ends is in the report, and the link is closed when all has been read.
func TestClose_ReadsToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveHere(behaviours{})
		c := &chatty{g, io.MultiReader(after{g.exited}, strings.NewReader("and one more thing\n")), make(chan struct{})}
		conn, err := lspconn.StartOver(t.Context(), lspconn.Server{Name: "chatty", Command: []string{"x"}}, c)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		equal(t, "stderr", "and one more thing\n", closed(t, conn).Stderr)
		<-conn.Done()
		select {
		case <-c.closed:
		default:
			t.Error("the link was not closed")
		}
	})
}

// A chatty server comes to its point a second after its process has ended: somebody else has its stderr, too.
type chatty struct {
	*goroutine
	stderr io.Reader
	closed chan struct{}
}

func (c *chatty) Stderr() io.Reader { return c.stderr }
func (c *chatty) Close()            { c.goroutine.Close(); close(c.closed) }

// after is at its end a second after something has happened.
type after struct{ happens <-chan struct{} }

func (a after) Read([]byte) (int, error) {
	<-a.happens
	time.Sleep(time.Second)
	return 0, io.EOF
}

// What was accepted is written ahead of shutdown, in its order; with Discard it is not. What was coalesced fails in both.
func TestClose_Queue(t *testing.T) {
	for _, discard := range []bool{false, true} {
		t.Run(fmt.Sprintf("discard=%v", discard), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, g := slow(t, lspconn.Server{Discard: discard})
				conn.Ready(t.Context())
				time.Sleep(time.Second) // until initialized is written
				errs := make([]error, 10)
				var callers sync.WaitGroup
				for i := range errs {
					callers.Go(func() {
						errs[i] = conn.Notify(context.Background(), "note", json.RawMessage(fmt.Sprint(i)))
					})
					synctest.Wait() // in this order
				}
				latest := conn.NotifyLatest("k", "note", json.RawMessage(`"latest"`))
				r := closed(t, conn)
				callers.Wait()
				equal(t, "outcome", lspconn.Clean, r.Outcome)
				if err := latest.Wait(t.Context()); !errors.Is(err, lspconn.ErrClosing) {
					t.Errorf("what was coalesced: %v", err)
				}
				var got []string
				for _, m := range g.Seen() {
					got = append(got, m.Method+string(m.Params))
				}
				want := []string{`initialize{"processId":null,"rootUri":null,"capabilities":{}}`, "initialized{}"}
				for i, err := range errs {
					// The first was under way, and is completed in any case.
					if (err == nil) != (!discard || i == 0) || err != nil && !errors.Is(err, lspconn.ErrClosing) {
						t.Errorf("note %d: %v", i, err)
					}
					if err == nil {
						want = append(want, fmt.Sprintf("note%d", i))
					}
				}
				equal(t, "seen", append(want, "shutdown", "exit"), got)
			})
		})
	}
}

// slowly takes its time to read: each write waits for that.
type slowly struct {
	*goroutine
	each time.Duration
}

// slow starts a connection whose writes take 100 ms each.
func slow(t *testing.T, server lspconn.Server) (*lspconn.Conn, *goroutine) {
	t.Helper()
	g := serveHere(behaviours{})
	server.Name, server.Command = "slow", []string{"slow"}
	conn, err := lspconn.StartOver(t.Context(), server, &slowly{g, 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return conn, g
}

func (s *slowly) Stdin() io.WriteCloser { return slowPipe{s} }

type slowPipe struct{ *slowly }

func (p slowPipe) Write(b []byte) (int, error) { time.Sleep(p.each); return p.stdin.Write(b) }
func (p slowPipe) Close() error                { return p.stdin.Close() }

// The deadline holds for pending calls too: they are answered when the server has gone, or before.
func TestClose_PendingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := here(t, t.Context(), lspconn.Server{}, behaviours{Exit: "ignore", EOF: "ignore"})
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
		equal(t, "time", 8*time.Second, time.Since(begin)) // SIGTERM ends it
	})
}

// A server may answer pending calls until it leaves.
func TestClose_AnswersStillCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan string, 1)
		release := make(chan struct{})
		server := lspconn.Server{OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
			<-release
			return "late", ctx.Err()
		}}
		conn, _ := here(t, t.Context(), server, behaviours{Shutdown: "ask"})
		conn.Ready(t.Context())
		go func() {
			result, err := conn.Call(context.Background(), "ask", nil)
			answered <- fmt.Sprint(string(result), err)
		}()
		synctest.Wait()
		reports := make(chan lspconn.Report, 1)
		go func() { reports <- closed(t, conn) }()
		synctest.Wait()
		equal(t, "state", lspconn.Closing, conn.State())
		release <- struct{}{} // for the one who has asked first, the call
		equal(t, "answer", `"late"<nil>`, <-answered)
		close(release) // and the server may answer shutdown
		equal(t, "outcome", lspconn.Clean, (<-reports).Outcome)
	})
}

// Two, or ten, who close get the same report, and one whose context ends does not stop it.
func TestClose_IsJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := here(t, t.Context(), lspconn.Server{}, behaviours{Shutdown: "never"})
		conn.Ready(t.Context())
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { equal(t, "total", 6*time.Second, closed(t, conn).Total) })
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := conn.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed by the context's end: %v", err)
		}
		all.Wait()
		equal(t, "total", 6*time.Second, closed(t, conn).Total)
	})
}

// The connection is part of the program: its stop closes it, and its drain waits for the process.
func TestScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := ctxshutdown.New(context.Background(), ctxshutdown.WithName("editor"))
		conn, _ := here(t, program, lspconn.Server{}, behaviours{Shutdown: "never"})
		conn.Ready(t.Context())
		go conn.Call(context.Background(), "never", nil)
		synctest.Wait()
		drained := program.Shutdown()
		if _, err := conn.Call(context.Background(), "echo", nil); !errors.Is(err, lspconn.ErrClosing) {
			t.Errorf("admitted after the stop: %v", err)
		}
		synctest.Wait()
		equal(t, "report", "3 guards: editor/here/calls ×2, editor/here/process ×1", program.GuardReport().String())
		begin := time.Now()
		if err := drained.Wait(context.Background()); err != nil {
			t.Error(err)
		}
		equal(t, "time", 6*time.Second, time.Since(begin))
		equal(t, "state", lspconn.Closed, conn.State())
	})
}

// Force does not wait for anything but the reap. It sends SIGTERM and SIGKILL, and the report has the one that did it.
func TestScope_Force(t *testing.T) {
	for ignores, want := range map[bool]lspconn.Outcome{true: lspconn.Killed, false: lspconn.Terminated} {
		synctest.Test(t, func(t *testing.T) {
			program := ctxshutdown.New(context.Background())
			conn, _ := here(t, program, lspconn.Server{}, behaviours{Shutdown: "never", EOF: "ignore", IgnoreTerm: ignores})
			conn.Ready(t.Context())
			begin := time.Now()
			program.Force(nil).Wait(context.Background())
			equal(t, "time", time.Duration(0), time.Since(begin))
			r := closed(t, conn)
			if r.Outcome != want || (r.Exit.Signal == "killed") != ignores || !errors.Is(r.Failure, ctxshutdown.ErrForced) {
				t.Errorf("%v, want %v", r, want)
			}
		})
	}
}

// What is stuck in the kernel is called unconfirmed at the deadline, and Closed only after the reap.
func TestUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveHere(behaviours{})
		immortal := &immortal{g, make(chan struct{})}
		conn, err := lspconn.StartOver(t.Context(), lspconn.Server{Name: "undead", Command: []string{"x"}}, immortal)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		begin := time.Now()
		r, err := conn.Close(t.Context())
		if !errors.Is(err, lspconn.ErrUnconfirmed) || r.Outcome != lspconn.Unconfirmed || r.Exit != nil {
			t.Errorf("%v, %v", r, err)
		}
		equal(t, "time", 10*time.Second, time.Since(begin))
		equal(t, "state", lspconn.Closing, conn.State())
		equal(t, "guards", "1 guard: undead/process ×1", conn.Scope().GuardReport().String())
		close(immortal.dies)
		<-conn.Done()
		equal(t, "state", lspconn.Closed, conn.State())
		var late *lspconn.ConnError
		if _, err := conn.Call(t.Context(), "echo", nil); !errors.As(err, &late) || late.Exit == nil {
			t.Errorf("how the process has ended is not told: %v", err)
		}
	})
}

// An immortal is a process that is never reaped, until it is.
type immortal struct {
	*goroutine
	dies chan struct{}
}

func (i *immortal) Exited() <-chan struct{} { return i.dies }
func (i *immortal) Done() <-chan struct{}   { return i.dies }

func (i *immortal) End(at deadlines) (exit, error) {
	select {
	case <-i.dies:
		return i.goroutine.Exit(), nil
	case <-time.After(time.Until(at.GiveUp)):
		return exit{Code: -1}, lspconn.ErrUnconfirmed
	}
}

// The same with processes: a flood of stderr, grandchildren that hold the pipes, and all that the bubble cannot show.
func TestProcesses(t *testing.T) {
	for _, test := range []struct {
		name    string
		role    role
		outcome lspconn.Outcome
		linux   bool
	}{
		{"polite", role{}, lspconn.Clean, false},
		{"exit code 1", role{Behaviour: behaviours{Code: 1}}, lspconn.Clean, false},
		{"a flood of stderr", role{Flood: 3_000_000}, lspconn.Clean, false},
		{"leaves a child that ignores SIGTERM", role{Child: "fork"}, lspconn.Clean, false},
		{"leaves one in another session", role{Child: "setsid"}, lspconn.Clean, true},
		{"leaves one that has forked twice", role{Child: "twice"}, lspconn.Clean, true},
		{"is terminated, and leaves one that has forked twice", role{Behaviour: behaviours{Shutdown: "refuse", EOF: "ignore"}, Child: "twice"}, lspconn.Terminated, true},
		{"refuses shutdown", role{Behaviour: behaviours{Shutdown: "refuse", EOF: "ignore"}}, lspconn.Terminated, false},
		{"and ignores SIGTERM, with a child", role{Behaviour: behaviours{Shutdown: "refuse", EOF: "ignore", IgnoreTerm: true}, Child: "setsid"}, lspconn.Killed, true},
		{"exits on shutdown", role{Behaviour: behaviours{Shutdown: "exit"}}, lspconn.ExitedEarly, false},
		{"stops reading", role{Behaviour: behaviours{StopAfter: 3}}, lspconn.Terminated, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.linux && runtime.GOOS != "linux" {
				t.Skip("only Linux can tell who has left the process group")
			}
			t.Parallel()
			server := fake(test.role)
			server.Env = append(server.Env, "LSPCONN_TEST_PROCESS="+crand.Text())
			conn := ready(t, server)
			if test.role.StopAfter > 0 { // the pipe is full then
				big := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
				for range 4 {
					go conn.Notify(context.Background(), "note", big)
				}
				for conn.Scope().GuardCount() < 4 {
					runtime.Gosched()
				}
			} else {
				equal(t, "echo", `[1]`, call(t, conn, "echo", `[1]`))
			}
			r := closed(t, conn)
			if r.Outcome != test.outcome || len(r.Survivors) > 0 {
				t.Errorf("%v, want %v and no survivor", r, test.outcome)
			}
			empty(t, server)
			if test.role.Child != "" && test.outcome == lspconn.Clean && runtime.GOOS == "linux" && len(r.Left) != 1 {
				t.Errorf("left behind: %v", r.Left)
			}
		})
	}
}

// Histories with processes: fewer, shorter, and at the speed of the machine.
func TestProcessHistories(t *testing.T) {
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
		var told, written int
		var mu sync.Mutex
		for range 4 {
			all.Go(func() {
				for range 10 {
					err := conn.Notify(t.Context(), "note", nil)
					mu.Lock()
					told++
					if err == nil {
						written++
					} else if !errors.Is(err, lspconn.ErrClosing) {
						t.Error(err)
					}
					mu.Unlock()
					if result, err := conn.Call(t.Context(), "echo", []byte("[1]")); err == nil && string(result) != "[1]" {
						t.Errorf("answer %s", result)
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
		report := closed(t, conn)
		all.Wait()
		equal(t, "answers", 40, told)
		text, err := os.ReadFile(log)
		if report.Outcome != lspconn.Clean { // it was initializing
			continue
		}
		if err != nil || strings.Contains(string(text), "FAULT") || strings.Count(string(text), "note\n") != written {
			t.Fatalf("%d notes were written, and the server has seen (%v):\n%s", written, err, text)
		}
	}
}

// A crash fails what is pending with all that is known, and the connection is Failed until it is closed.
func TestCrash(t *testing.T) {
	conn := ready(t, fake(role{Behaviour: behaviours{Code: 3, Stderr: "first line\npanic: at the disco\n"}}))
	_, err := conn.Call(t.Context(), "die", nil)
	var failed *lspconn.ConnError
	var exited *lspconn.ExitError
	if !errors.As(err, &failed) || !errors.As(err, &exited) || !errors.Is(err, lspconn.ErrClosing) {
		t.Fatalf("%#v", err)
	}
	equal(t, "error", `lspconn: fake: die: the connection has failed: the server has ended by itself: exit code 3; the process: exit code 3; it said: "panic: at the disco"`, err.Error())
	equal(t, "stderr", "first line\npanic: at the disco\n", failed.Stderr)
	<-conn.Done()
	equal(t, "state", lspconn.Failed, conn.State())
	if _, err := conn.Call(t.Context(), "echo", nil); !errors.As(err, &exited) {
		t.Errorf("a call after the crash: %v", err)
	}
	r := closed(t, conn)
	equal(t, "outcome", lspconn.ExitedEarly, r.Outcome)
	equal(t, "exit", &lspconn.Exit{Code: 3}, r.Exit)
	equal(t, "stderr of the report", "first line\npanic: at the disco\n", r.Stderr)
	contains(t, r.Failure, "the server has ended by itself: exit code 3")
}

// What is no LSP makes the connection fail, by a clear error, and ends the process.
func TestBadServer(t *testing.T) {
	for _, test := range []struct{ method, says string }{
		{"garbage", "the server broke the protocol: a header without Content-Length"},
		{"header", "the server broke the protocol: a header line of more than 8192 bytes"},
		{"headers", "the server broke the protocol: a header of more than 32768 bytes"},
		{"negative", `the server broke the protocol: no length: "Content-Length: -1"`},
		{"huge", "the server broke the protocol: a message of 999999999999 bytes, more than the 268435456 that are read"},
		{"json", `the server broke the protocol: a message that cannot be read, "{\"jsonrpc\":": unexpected end of JSON input`},
		{"batch", "the server broke the protocol: a message that cannot be read"},
		{"stray", `the server broke the protocol: a response to a request that was never made, id "99999"`},
		{"half", "ended by itself: exit code 0; the server broke the protocol: its output ends after 11 of the 100 bytes of a message"},
	} {
		t.Run(test.method, func(t *testing.T) {
			t.Parallel()
			conn := ready(t, fake(role{Behaviour: behaviours{EOF: "ignore"}}))
			_, err := conn.Call(t.Context(), test.method, nil)
			if !errors.Is(err, lspconn.ErrClosing) {
				t.Fatalf("%v", err)
			}
			contains(t, err, test.says)
			var broken *lspconn.ProtocolError
			if !errors.As(err, &broken) {
				t.Errorf("%T has no ProtocolError", err)
			}
			<-conn.Done() // nobody has to close it
			equal(t, "state", lspconn.Failed, conn.State())
		})
	}
}

// Who has failed is told nothing more, and is Failed for everybody to see when it is gone, which nobody has to ask for.
func TestFailed(t *testing.T) {
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
				conn, g := here(t, t.Context(), lspconn.Server{}, test.b)
				begin := time.Now()
				if _, err := conn.Call(context.Background(), "garbage", nil); !errors.Is(err, lspconn.ErrClosing) {
					t.Errorf("%v", err)
				}
				<-conn.Done()
				equal(t, "time", time.Duration(0), time.Since(begin))
				equal(t, "state", lspconn.Failed, conn.State())
				select {
				case <-g.exited:
				default:
					t.Error("the process is still there")
				}
				var methods []string
				for _, m := range g.Seen() {
					methods = append(methods, m.Method)
				}
				equal(t, "seen", test.want, methods)
				equal(t, "outcome", lspconn.Terminated, closed(t, conn).Outcome)
			})
		})
	}
}

// Before it is ready a server can fail in its own ways.
func TestBadStart(t *testing.T) {
	for _, test := range []struct {
		name string
		role role
		says string
	}{
		{"exits at once", role{Text: " ", Behaviour: behaviours{Code: 4, Stderr: "no license\n"}}, `exit code 4; it said: "no license"`},
		{"speaks garbage", role{Text: "Hello, I am a server.\n"}, `no header: "Hello, I am a server."`},
		{"exits on initialize", role{Behaviour: behaviours{Initialize: "exit"}}, "ended by itself: exit code 0"},
		{"refuses", role{Behaviour: behaviours{Initialize: "refuse"}}, "refuses initialize: not in the mood (-32603)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn := start(t, fake(test.role))
			errs := make(chan error)
			go func() { // it waits for the server to be ready
				_, err := conn.Call(context.Background(), "echo", nil)
				errs <- err
			}()
			_, err := conn.Ready(t.Context())
			if err == nil {
				t.Fatal("it is ready")
			}
			err = <-errs
			if !errors.Is(err, lspconn.ErrClosing) {
				t.Errorf("a call: %v", err)
			}
			<-conn.Done()
			contains(t, conn.Err(), test.says)
		})
	}
	t.Run("takes too long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			conn, _ := here(t, t.Context(), lspconn.Server{}, behaviours{Initialize: "never"})
			begin := time.Now()
			_, err := conn.Ready(t.Context())
			contains(t, err, "has not answered initialize in time, which is 1m0s")
			equal(t, "time", time.Minute, time.Since(begin))
			closed(t, conn)
		})
	})
}

func TestStart_BadInput(t *testing.T) {
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
		{"initialize", lspconn.Server{Command: []string{"x"}, Initialize: []byte("{")}, nil, `Server.Initialize is not JSON: "{"`},
		{"too short", lspconn.Server{Command: []string{"x"}, CloseTimeout: 5*time.Second - 1}, nil, "Server.CloseTimeout is 4.999999999s: it must be from 5s to 15s"},
		{"too long", lspconn.Server{Command: []string{"x"}, CloseTimeout: 16 * time.Second}, nil, "it must be from 5s to 15s"},
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
	contains(t, err, "is not started: too late")
}

// A deaf one fails the write of "x" as a process does that has closed its stdin, and dies of it 300 ms later.
type deaf struct{ *goroutine }

func (d *deaf) Stdin() io.WriteCloser { return deafPipe{d} }

type deafPipe struct{ *deaf }

func (p deafPipe) Close() error { return p.stdin.Close() }

func (p deafPipe) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte(`"x"`)) {
		return p.stdin.Write(b)
	}
	time.AfterFunc(300*time.Millisecond, func() { p.stdin.Write(lspconn.Frame(99, "die", nil)) })
	return 0, syscall.EPIPE
}

// Who finds out about a crash by a write that fails is told of the crash, not of a close that nobody has asked for.
func TestCrash_FailsAWrite(t *testing.T) {
	for _, test := range []struct {
		name string
		send func(*lspconn.Conn) error
	}{
		{"a notification", func(c *lspconn.Conn) error { return c.Notify(context.Background(), "x", nil) }},
		{"a call", func(c *lspconn.Conn) error { _, err := c.Call(context.Background(), "x", nil); return err }},
		{"a coalesced one", func(c *lspconn.Conn) error { return c.NotifyLatest("k", "x", nil).Wait(context.Background()) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := lspconn.Server{Name: "deaf", Command: []string{"deaf"}}
				conn, err := lspconn.StartOver(t.Context(), server, &deaf{serveHere(behaviours{Code: 3})})
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
				equal(t, "outcome", lspconn.ExitedEarly, closed(t, conn).Outcome)
				equal(t, "guards", 0, conn.Scope().GuardCount())
			})
		})
	}
	// Who gives up meanwhile gets what he has given up for.
	synctest.Test(t, func(t *testing.T) {
		server := lspconn.Server{Name: "deaf", Command: []string{"deaf"}}
		conn, err := lspconn.StartOver(t.Context(), server, &deaf{serveHere(behaviours{Code: 3})})
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
		closed(t, conn)
		equal(t, "guards", 0, conn.Scope().GuardCount())
	})
}

// A slowExit takes a second to be written the exit.
type slowExit struct {
	*goroutine
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

// An answer that waits while exit is written is not written after it.
func TestClose_NothingAfterExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		link := &slowExit{goroutine: serveHere(behaviours{})}
		conn, err := lspconn.StartOver(t.Context(), lspconn.Server{Name: "slow", Command: []string{"slow"},
			OnRequest: func(context.Context, string, json.RawMessage) (any, error) { <-release; return "late", nil }}, link)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		go conn.Call(context.Background(), "ask", nil)
		synctest.Wait()
		time.AfterFunc(time.Second/2, func() { close(release) }) // exit is being written
		closed(t, conn)
		synctest.Wait()
		if last := link.written[len(link.written)-1]; !strings.Contains(last, `"exit"`) {
			t.Errorf("after exit came %s", last)
		}
	})
}

// The deadline of a Close is counted from the Close, also where a failure is just being looked into.
func TestClose_WhileItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &immortal{serveHere(behaviours{}), make(chan struct{})}
		conn, err := lspconn.StartOver(t.Context(), lspconn.Server{Name: "stuck", Command: []string{"x"}}, stuck)
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		conn.Notify(t.Context(), "die", nil) // its pipes end, and it does not
		synctest.Wait()
		begin := time.Now()
		if _, err := conn.Close(t.Context()); !errors.Is(err, lspconn.ErrUnconfirmed) {
			t.Errorf("%v", err)
		}
		equal(t, "time", 10*time.Second, time.Since(begin))
		close(stuck.dies)
		<-conn.Done()
	})
}

// A Logger may look at the connection that it is told of: nothing is held while it is.
func TestLogger_MayAsk(t *testing.T) {
	for _, test := range []struct {
		call string
		want []string
	}{
		{"twice", []string{"Ready", "Ready: a response is ignored, its call was given up or has been answered", "Closing", "Closing: ended", "Closed"}},
		{"die", []string{"Ready", "Failed", "Failed: ended", "Closed"}},
	} {
		t.Run(test.call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var conn *lspconn.Conn
				var mu sync.Mutex // the reader logs, too
				var got []string
				made := make(chan struct{})
				log := slog.New(handler(func(r slog.Record) {
					<-made
					line := conn.State().String() // under a lock, this is as far as it gets
					if message := strings.TrimPrefix(r.Message, "lspconn: "); message != line {
						line += ": " + message
					}
					mu.Lock()
					defer mu.Unlock()
					got = append(got, line)
				}))
				conn, _ = here(t, t.Context(), lspconn.Server{Logger: log}, behaviours{})
				close(made)
				conn.Ready(t.Context())
				conn.Call(t.Context(), test.call, nil)
				time.Sleep(time.Second) // the stray answer comes after the call's
				closed(t, conn)
				mu.Lock()
				defer mu.Unlock()
				equal(t, "log", test.want, got)
			})
		})
	}
}

// The report that a Logger gets has the panic of a callback.
func TestLogger_IsToldOfPanics(t *testing.T) {
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
		server := lspconn.Server{Logger: log, OnNotify: func(string, json.RawMessage) { panic("at the disco") }}
		conn, _ := here(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		conn.Call(t.Context(), "notes", json.RawMessage("1"))
		synctest.Wait()
		closed(t, conn)
		if !strings.Contains(got, "at the disco") {
			t.Errorf("the report of the logger is %q", got)
		}
	})
}

// A handler is a slog.Handler that calls a function.
type handler func(slog.Record)

func (h handler) Enabled(context.Context, slog.Level) bool      { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }
