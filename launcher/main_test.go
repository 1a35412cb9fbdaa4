//go:build unix

package launcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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

// asRole is the environment variable that makes the test binary a subprocess. Its value is a name
// in roles, or testrunner.
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
		if err := launcher.Guard(); err != nil {
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

// tooLong is the timeout of tests. Only broken code reaches it.
const tooLong = 30 * time.Second

// roles maps names to main functions of subprocesses that behave in ways the test runner does not
// support.
var roles = map[string]func(args []string){
	// This process does not speak the protocol, and ends at SIGTERM.
	"plain": func([]string) { forever() },
	// This process listens and never accepts, so connections wait in the kernel's queue.
	"black hole": func([]string) {
		if _, err := net.Listen("unix", os.Getenv(client.EnvAddress)); err != nil {
			panic(err)
		}
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("listening")
		forever()
	},
	// This process is ready, and never answers a Shutdown call.
	"hang": func([]string) { serveOdd(oddity{hang: true}) },
	// This process sends messages of 1 MiB.
	"verbose": func([]string) { serveOdd(oddity{message: strings.Repeat("x", 1<<20)}) },
	// This process presents a certificate other than that of its group.
	"foreign certificate": func(args []string) {
		os.Setenv(client.EnvCert, os.Getenv("SWANSONG_TEST_CERT"))
		os.Setenv(client.EnvKey, os.Getenv("SWANSONG_TEST_KEY"))
		os.Exit(testrunner.Main(args, os.Stderr))
	},
	// This process prints a line of 10 MiB and ends.
	"long line": func([]string) {
		if _, err := os.Stdout.WriteString(strings.Repeat("x", 10<<20)); err != nil {
			panic(err)
		}
	},
	// This process writes its arguments and the environment variable ODD to a file.
	"arguments": func(args []string) {
		text, _ := json.Marshal(append(args[1:], "ODD="+os.Getenv("ODD")))
		if err := os.WriteFile(args[0], text, 0o600); err != nil {
			panic(err)
		}
	},
	// This process is ready, and does not implement Shutdown.
	"unimplemented": func([]string) { serveOdd(oddity{}) },
	// This process is ready, and does not acknowledge Shutdown.
	"declines": func([]string) { serveOdd(oddity{declines: true}) },
	// This process refuses Shutdown, with a message that repeats the time limits of the call.
	"repeats what it is told":       func([]string) { serveOdd(oddity{declines: true, repeats: true}) },
	"repeats what it is told again": func([]string) { serveOdd(oddity{declines: true, repeats: true, busy: &atomic.Bool{}}) },
	// In its drain, this process waits for operations whose names contain a secret.
	"blocked": func([]string) {
		serveOdd(oddity{blockedBy: []string{"COMMIT on postgres://app:hunter2@db", "fine"}})
	},
	// This process sends a field that only a later version of the protocol has.
	"later version": func([]string) {
		serveOdd(oddity{blockedBy: []string{"work"}, unknown: "postgres://app:hunter2@db"})
	},
	// This process does what the test runner does, and in addition prints without end.
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
	// This process first starts 50 processes, in sessions of their own, that ignore SIGTERM. Then
	// it does what a test runner does.
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
	// This process notifies the launcher that the process victim-1 is ready, and then that it is
	// ready itself.
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

// An oddity is a server of the lifecycle protocol that leaves calls out or answers them wrongly.
type oddity struct {
	pb.UnimplementedProcessLifecycleInterfaceServer
	hang, declines, repeats bool
	busy                    *atomic.Bool // if not nil, the first call of Shutdown is not answered
	message                 string
	blockedBy               []string
	unknown                 string // the process sends this text in a field that the protocol does not have
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

// runners returns a group of test runners. Its limits are short, but long enough for a slow
// machine.
func runners(name string, desired int, args ...string) launcher.GroupConfig {
	return group(name, desired, "testrunner", append([]string{"--process-id", "{id}", "--work-duration", "1ms"}, args...)...)
}

// group returns the configuration of a group. Its processes run the test binary in the given role.
// They must say by the lifecycle protocol when they are ready, however long that takes.
func group(name string, desired int, role string, args ...string) launcher.GroupConfig {
	return launcher.GroupConfig{
		Name:    name,
		Command: append([]string{os.Args[0]}, args...),
		// A program built with the race detector waits for a second before it exits; this setting
		// avoids that.
		Env:      []string{asRole + "=" + role, "GORACE=atexit_sleep_ms=0", "GOMAXPROCS=1"},
		Desired:  desired,
		Protocol: launcher.GRPC,
		Shutdown: launcher.ShutdownConfig{
			Grace: 10 * time.Second, Max: 20 * time.Second, Poll: 50 * time.Millisecond, SIGTERMTimeout: 10 * time.Second,
		},
		Restart: launcher.RestartConfig{MinBackoff: 10 * time.Millisecond},
	}
}

// A harness is a manager under test with its events so far.
type harness struct {
	*launcher.Manager
	t      *testing.T
	dir    string
	events []launcher.Event
	watch  <-chan launcher.Event
}

// launch starts a manager. The test fails if the manager does not drain at its end, or leaves a
// process or goroutine.
func launch(t *testing.T, groups ...launcher.GroupConfig) *harness {
	t.Helper()
	return launchWith(t, launcher.Config{Groups: groups})
}

func launchWith(t *testing.T, cfg launcher.Config) *harness {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = shortDir(t)
	}
	m, watch, err := launcher.StartWatched(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{Manager: m, t: t, dir: cfg.Dir, watch: watch}
	t.Cleanup(func() { h.close() })
	return h
}

// shortDir returns a temporary directory. Unlike t.TempDir it leaves room for the name of a socket.
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

// readUntil reads events up to the first one that want accepts.
func (h *harness) readUntil(what string, want func(e launcher.Event) bool) launcher.Event {
	h.t.Helper()
	late := time.NewTimer(tooLong)
	defer late.Stop()
	for {
		select {
		case e, ok := <-h.watch:
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

// waitForState reads events until a process enters a state.
func (h *harness) waitForState(id string, state launcher.State) launcher.Event {
	h.t.Helper()
	return h.readUntil(fmt.Sprintf("%s is %v", id, state), func(e launcher.Event) bool {
		return e.Kind == launcher.Transition && e.Process == id && e.To == state
	})
}

// stopAndWait stops a process without a replacement, and returns the last status of the process.
func (h *harness) stopAndWait(id string) launcher.Status {
	h.t.Helper()
	if err := h.StopProcess(id, launcher.Stop{Reason: "test", NoReplacement: true}); err != nil {
		h.t.Fatal(err)
	}
	return h.waitForEnd(id)
}

// waitForAnswer waits until a process has answered a call.
func (h *harness) waitForAnswer(id string) {
	h.t.Helper()
	ctx := soon(h.t)
	for ctx.Err() == nil {
		runs, err := h.DryRun(ctx, id, "")
		if err != nil {
			h.t.Fatal(err)
		}
		// the message is the answer of the process, and not that the process is still being started
		if !strings.HasPrefix(runs[0].Message, "it ") {
			return
		}
	}
	h.t.Fatalf("%s does not answer\n%s", id, h.story())
}

// awaitFile waits until a file exists, or does not exist.
func awaitFile(t *testing.T, path string, there bool) {
	t.Helper()
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) {
		_, err := os.Stat(path)
		if there && err == nil || !there && errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s must exist: %v, but Stat returned the error %v", path, there, err)
		}
	}
}

// waitForDesired waits until a group desires n processes. The event of an exit comes before the
// group has counted the exit.
func (h *harness) waitForDesired(group string, n int) {
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
			h.t.Fatalf("%s desires %d processes, want %d\n%s", group, health.Desired, n, h.story())
		}
	}
}

// waitForEnd waits until a process has ended, and returns the last status of the process.
func (h *harness) waitForEnd(id string) launcher.Status {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if !slices.ContainsFunc(h.events, func(e launcher.Event) bool { return e.Process == id }) {
		h.readUntil(id+" is started", func(e launcher.Event) bool { return e.Process == id })
	}
	st, err := h.Wait(ctx, id)
	if err != nil {
		h.t.Fatalf("%v\n%s", err, h.story())
	}
	h.drainEvents()
	return st
}

// drainEvents receives the events that are available.
func (h *harness) drainEvents() {
	for {
		select {
		case e, ok := <-h.watch:
			if !ok {
				return
			}
			h.events = append(h.events, e)
		default:
			return
		}
	}
}

// count returns the number of events of a kind so far.
func (h *harness) count(kind launcher.Kind) (n int) {
	h.drainEvents()
	for _, e := range h.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// story lists the events so far, for error messages.
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

// freeAddress returns an address that no socket listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
