//go:build unix

package launcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/client"
	"github.com/swansong-go/swansong/launcher/internal/testrunner"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// asRole has the test binary be a subprocess: a name in roles, or the test runner.
const asRole = "LAUNCHER_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(asRole); role != "" {
		os.Unsetenv(asRole)
		if role == "testrunner" {
			os.Exit(testrunner.Main(os.Args[1:], os.Stderr))
		}
		roles[role](os.Args[1:])
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "guardian" {
		var redact func(string) string
		if len(os.Args) > 2 {
			redact = func(s string) string {
				if strings.Contains(s, "xxx") {
					panic("cannot redact " + s)
				}
				return s
			}
		}
		if err := launcher.Guard(redact); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 3 && os.Args[1] == "exec" {
		fmt.Fprintln(os.Stderr, launcher.Exec(os.Args[3:]))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// tooLong is for broken code.
const tooLong = 30 * time.Second

// roles are subprocesses that the test runner cannot be.
var roles = map[string]func(args []string){
	// What does not take part, and ends at SIGTERM as a program does by default.
	"plain": func([]string) { forever() },
	// What listens where it should, and never answers: connections wait in the queue of the kernel.
	"black hole": func([]string) {
		if _, err := net.Listen("unix", os.Getenv(client.EnvAddress)); err != nil {
			panic(err)
		}
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("listening")
		forever()
	},
	// What is ready, does not take part in anything else, and never reads a signal.
	"hang": func([]string) { serveOdd(oddity{hang: true}) },
	// What says more than anybody wants to hear.
	"verbose": func([]string) { serveOdd(oddity{message: strings.Repeat("x", 1<<20)}) },
	// What shows another certificate than that of its group.
	"foreign certificate": func(args []string) {
		os.Setenv(client.EnvCert, os.Getenv("SWANSONG_TEST_CERT"))
		os.Setenv(client.EnvKey, os.Getenv("SWANSONG_TEST_KEY"))
		os.Exit(testrunner.Main(args, os.Stderr))
	},
	// What prints a line of 10 MiB, and ends.
	"long line": func([]string) {
		if _, err := os.Stdout.WriteString(strings.Repeat("x", 10<<20)); err != nil {
			panic(err)
		}
	},
	// What writes its arguments and ODD, of its environment, to a file.
	"arguments": func(args []string) {
		text, _ := json.Marshal(append(args[1:], "ODD="+os.Getenv("ODD")))
		if err := os.WriteFile(args[0], text, 0o600); err != nil {
			panic(err)
		}
	},
	// What is ready, and knows nothing of a shutdown.
	"unimplemented": func([]string) { serveOdd(oddity{}) },
	// What is ready, and will not.
	"declines": func([]string) { serveOdd(oddity{declines: true}) },
	// What says in its refusal how long it was told that it has.
	"repeats what it is told":       func([]string) { serveOdd(oddity{declines: true, repeats: true}) },
	"repeats what it is told again": func([]string) { serveOdd(oddity{declines: true, repeats: true, busy: &atomic.Bool{}}) },
	// What waits, once it is to stop, for operations that nobody else should read of as they are.
	"blocked": func([]string) {
		serveOdd(oddity{blockedBy: []string{"COMMIT on postgres://app:hunter2@db", "fine"}})
	},
	// What is of a later version, which says more of itself.
	"later version": func([]string) {
		serveOdd(oddity{blockedBy: []string{"work"}, unknown: "postgres://app:hunter2@db"})
	},
	// What prints without end, through a pipe that nobody may let it block on, and else is a test runner.
	"noisy": func(args []string) {
		go func() {
			line := []byte(strings.Repeat("x", 1000) + "\n")
			for {
				os.Stdout.Write(line)
			}
		}()
		os.Exit(testrunner.Main(args, os.Stderr))
	},
	"exit": func(args []string) {
		code, _ := strconv.Atoi(args[0])
		os.Exit(code)
	},
	// What starts others, in sessions of their own, all of them deaf to SIGTERM, and then is a test runner.
	"family": func(args []string) {
		for range 50 {
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), asRole+"=deaf")
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			out, _ := child.StdoutPipe()
			if err := child.Start(); err != nil {
				panic(err)
			}
			out.Read(make([]byte, 1))
		}
		os.Exit(testrunner.Main(args, os.Stderr))
	},
	"deaf": func([]string) {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("deaf")
		forever()
	},
	// What says that another process is ready.
	"impostor": func([]string) {
		conn, err := grpc.NewClient("unix:"+os.Getenv(client.EnvLauncher), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			panic(err)
		}
		to := pb.NewLauncherNotificationInterfaceClient(conn)
		_, err = to.NotifyReady(context.Background(), &pb.ReadyNotification{ProcessId: "victim-1"})
		fmt.Println(status.Code(err))
		_, err = to.NotifyReady(context.Background(), &pb.ReadyNotification{ProcessId: os.Getenv(client.EnvID)})
		fmt.Println(status.Code(err))
	},
}

// An oddity serves the protocol in part.
type oddity struct {
	pb.UnimplementedProcessLifecycleInterfaceServer
	hang, declines, repeats bool
	busy                    *atomic.Bool // not nil: the first call is not answered
	message                 string
	blockedBy               []string
	unknown                 string // what is in a field that this version of the protocol does not have
}

func (o oddity) GetReadinessStatus(context.Context, *pb.ReadinessRequest) (*pb.ReadinessResponse, error) {
	return &pb.ReadinessResponse{State: pb.ReadinessResponse_READY, Message: o.message}, nil
}

func (o oddity) Shutdown(ctx context.Context, in *pb.ShutdownRequest) (*pb.ShutdownAck, error) {
	switch {
	case o.hang:
		select {}
	case o.busy != nil && o.busy.CompareAndSwap(false, true):
		<-ctx.Done()
		return nil, ctx.Err()
	case o.repeats:
		return &pb.ShutdownAck{Message: fmt.Sprintf("%d ms, %d ms", in.GetGracePeriodMs(), in.GetMaxShutdownMs())}, nil
	case o.declines:
		return &pb.ShutdownAck{Message: "not now"}, nil
	case o.blockedBy != nil:
		return &pb.ShutdownAck{Acknowledged: true}, nil
	}
	return o.UnimplementedProcessLifecycleInterfaceServer.Shutdown(ctx, in)
}

func (o oddity) GetShutdownStatus(ctx context.Context, in *pb.ShutdownStatusRequest) (*pb.ShutdownStatus, error) {
	if o.blockedBy == nil {
		return o.UnimplementedProcessLifecycleInterfaceServer.GetShutdownStatus(ctx, in)
	}
	out := &pb.ShutdownStatus{State: pb.ShutdownStatus_SHUTDOWN_BLOCKED,
		Metrics: &pb.ShutdownMetrics{InFlightRequests: int32(len(o.blockedBy)), BlockingOperations: o.blockedBy}}
	if o.unknown != "" {
		out.Metrics.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 12345, protowire.BytesType), o.unknown))
	}
	return out, nil
}

func serveOdd(o oddity) {
	ln, err := net.Listen("unix", os.Getenv(client.EnvAddress))
	if err != nil {
		panic(err)
	}
	srv := grpc.NewServer()
	pb.RegisterProcessLifecycleInterfaceServer(srv, o)
	srv.Serve(ln)
}

func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// runners is a group of test runners, with limits that are short but not so short that a slow machine counts as a hang.
func runners(name string, desired int, args ...string) launcher.GroupConfig {
	return group(name, desired, "testrunner", append([]string{"--process-id", "{id}", "--work-duration", "1ms"}, args...)...)
}

// group is a group of the test binary in a role.
func group(name string, desired int, role string, args ...string) launcher.GroupConfig {
	return launcher.GroupConfig{
		Name:    name,
		Command: append([]string{os.Args[0]}, args...),
		// The race detector has a program wait for a second when it ends.
		Env:     []string{asRole + "=" + role, "GORACE=atexit_sleep_ms=0", "GOMAXPROCS=1"},
		Desired: desired,
		Shutdown: launcher.ShutdownConfig{
			Grace: 10 * time.Second, Max: 20 * time.Second, Poll: 50 * time.Millisecond, SIGTERMTimeout: 10 * time.Second,
		},
		Restart: launcher.RestartConfig{MinBackoff: 10 * time.Millisecond},
	}
}

// A harness is a manager under test, with all that it has told.
type harness struct {
	*launcher.Manager
	t      *testing.T
	dir    string
	events []launcher.Event
	told   <-chan launcher.Event
}

// launch starts a manager, which must be drained at the end of the test, and nothing that it started may be left.
func launch(t *testing.T, groups ...launcher.GroupConfig) *harness {
	t.Helper()
	return launchWith(t, launcher.Config{Groups: groups})
}

func launchWith(t *testing.T, cfg launcher.Config) *harness {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = shortDir(t)
	}
	m, told, err := launcher.StartWatched(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{Manager: m, t: t, dir: cfg.Dir, told: told}
	t.Cleanup(func() { h.close() })
	return h
}

// shortDir is a directory whose name leaves room for that of a socket, which t.TempDir's does not.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "swl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (h *harness) close() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Shutdown().Wait(ctx); err != nil {
		h.Force(fmt.Errorf("the test is over"))
		h.t.Errorf("the launcher does not drain: %v\n%s", err, h.story())
	}
}

// ready waits until all groups are healthy.
func (h *harness) ready() *harness {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Ready(ctx); err != nil {
		h.t.Fatalf("%v\n%s", err, h.story())
	}
	return h
}

// until reads events up to one that is wanted.
func (h *harness) until(what string, want func(e launcher.Event) bool) launcher.Event {
	h.t.Helper()
	late := time.NewTimer(tooLong)
	defer late.Stop()
	for {
		select {
		case e, ok := <-h.told:
			if !ok {
				h.t.Fatalf("the launcher ended before: %s\n%s", what, h.story())
			}
			h.events = append(h.events, e)
			if want(e) {
				return e
			}
		case <-late.C:
			h.t.Fatalf("does not happen: %s\n%s", what, h.story())
		}
	}
}

// enters reads events until a process enters a state.
func (h *harness) enters(id string, state launcher.State) launcher.Event {
	h.t.Helper()
	return h.until(fmt.Sprintf("%s is %v", id, state), func(e launcher.Event) bool {
		return e.Kind == launcher.Transition && e.Process == id && e.To == state
	})
}

// stops tells a process to stop, without a replacement, and returns how it has ended.
func (h *harness) stops(id string) launcher.Status {
	h.t.Helper()
	if err := h.StopProcess(id, launcher.Stop{Reason: "the test says so", NoReplacement: true}); err != nil {
		h.t.Fatal(err)
	}
	return h.ends(id)
}

// answers waits until a process has answered a call.
func (h *harness) answers(id string) {
	h.t.Helper()
	ctx := soon(h.t)
	for ctx.Err() == nil {
		runs, err := h.DryRun(ctx, id, "")
		if err != nil {
			h.t.Fatal(err)
		}
		if !strings.HasPrefix(runs[0].Message, "it ") { // is being started, does not answer
			return
		}
	}
	h.t.Fatalf("%s does not answer\n%s", id, h.story())
}

// desires waits until a group is to have so many processes: what one of them has become is told before the group has counted it.
func (h *harness) desires(group string, n int) {
	h.t.Helper()
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) {
		health, err := h.GroupHealth(group)
		if err != nil {
			h.t.Fatal(err)
		}
		if health.Desired == n {
			return
		}
		if time.Now().After(late) {
			h.t.Fatalf("%s is to have %d processes, want %d\n%s", group, health.Desired, n, h.story())
		}
	}
}

func (h *harness) ends(id string) launcher.Status {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if !slices.ContainsFunc(h.events, func(e launcher.Event) bool { return e.Process == id }) {
		h.until(id+" is started", func(e launcher.Event) bool { return e.Process == id })
	}
	st, err := h.Wait(ctx, id)
	if err != nil {
		h.t.Fatalf("%v\n%s", err, h.story())
	}
	h.drainEvents()
	return st
}

// drainEvents takes the events that there are.
func (h *harness) drainEvents() {
	for {
		select {
		case e, ok := <-h.told:
			if !ok {
				return
			}
			h.events = append(h.events, e)
		default:
			return
		}
	}
}

// count returns how many events of a kind there were.
func (h *harness) count(kind launcher.Kind) (n int) {
	h.drainEvents()
	for _, e := range h.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// story is for failures.
func (h *harness) story() string {
	h.drainEvents()
	var b strings.Builder
	for _, e := range h.events {
		fmt.Fprintf(&b, "\t%s %s %s %s %v→%v %v %s\n", e.Time.Format("05.000"), e.Group, e.Process, e.Kind, e.From, e.To, e.Outcome, e.Message)
	}
	return b.String()
}

// running returns the processes of a group that have not ended.
func (h *harness) running(group string) []launcher.Status {
	h.t.Helper()
	health, err := h.GroupHealth(group)
	if err != nil {
		h.t.Fatal(err)
	}
	return slices.DeleteFunc(health.Processes, func(st launcher.Status) bool { return st.State.Ended() })
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
