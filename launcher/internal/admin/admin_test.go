//go:build unix

package admin_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/admin"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

var errNotFound = errors.New("not found")

// A fakeLauncher has the group web with the process web-1. Calls of methods that it does not
// implement panic.
type fakeLauncher struct {
	admin.Launcher
	pid     int // pid of web-1
	uid     int // uid of web-1; -1: the launcher's user
	ready   int // number of notifications that web-1 is ready
	stopped int // how often web-1 was ordered to stop
	events  chan *pb.Event
}

func (l *fakeLauncher) IsNotFound(err error) bool { return err == errNotFound }

func (l *fakeLauncher) CheckGroup(name string) error {
	if name != "web" {
		return errNotFound
	}
	return nil
}

func (l *fakeLauncher) Process(string) (*pb.ProcessStatus, error) { return &pb.ProcessStatus{}, nil }

func (l *fakeLauncher) StopProcess(string, string, time.Duration, bool) error {
	l.stopped++
	return nil
}

func (l *fakeLauncher) Watch() (next func(context.Context) *pb.Event, stop func()) {
	return func(ctx context.Context) *pb.Event {
		select {
		case e := <-l.events:
			return e
		case <-ctx.Done():
			return nil
		}
	}, func() {}
}

func (l *fakeLauncher) Notifier(string) (admin.Process, error) { return l, nil }
func (l *fakeLauncher) HasPID(pid int) bool                    { return pid == l.pid }
func (l *fakeLauncher) UID() int                               { return l.uid }
func (l *fakeLauncher) ShutdownComplete(string, string) bool   { return true }
func (l *fakeLauncher) Serving(context.Context, int32) error   { return nil }
func (l *fakeLauncher) Ready(string) bool                      { l.ready++; return true }

// serve serves a launcher on a unix socket until the test ends, and returns a connection to it.
func serve(t *testing.T, l admin.Launcher) *grpc.ClientConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "admin") // MkdirTemp gives a shorter path than t.TempDir, and paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	server := admin.New(l)
	if err := server.ListenUnix(socket, nil); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(server.Serve)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(peer.Credentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		serving.Wait()
		server.Close()
	})
	return conn
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
}

func TestStopProcess_RefusesInvalidGracePeriod(t *testing.T) {
	l := &fakeLauncher{}
	to := pb.NewLauncherAdminInterfaceClient(serve(t, l))
	for _, grace := range []time.Duration{-time.Second, 0, 24*time.Hour + 1} {
		_, err := to.StopProcess(t.Context(), &pb.StopProcessRequest{ProcessId: "web-1", GracePeriod: durationpb.New(grace)})
		wantCode(t, grace.String(), err, codes.InvalidArgument)
	}
	if l.stopped > 0 {
		t.Errorf("%d orders were passed on", l.stopped)
	}
	_, err := to.StopProcess(t.Context(), &pb.StopProcessRequest{ProcessId: "web-1", GracePeriod: durationpb.New(24 * time.Hour)})
	wantCode(t, "24h", err, codes.OK)
}

func TestRestartGroup_RefusesUnknownGroupAndOrder(t *testing.T) {
	to := pb.NewLauncherAdminInterfaceClient(serve(t, &fakeLauncher{}))
	_, err := to.RestartGroup(t.Context(), &pb.RestartGroupRequest{Group: "x", Order: 99})
	wantCode(t, "unknown group", err, codes.NotFound)
	_, err = to.RestartGroup(t.Context(), &pb.RestartGroupRequest{Group: "web", Order: 99})
	wantCode(t, "unknown order", err, codes.InvalidArgument)
}

// A client watches the events of one group. The service tells the client how many events it has
// missed, including events of other groups.
func TestWatchEvents_SendsEventsOfRequestedGroupOnly(t *testing.T) {
	l := &fakeLauncher{events: make(chan *pb.Event, 3)}
	l.events <- &pb.Event{Group: "worker", Missed: 2}
	l.events <- &pb.Event{Group: "web", Missed: 1}
	l.events <- &pb.Event{Group: "web"}
	to := pb.NewLauncherAdminInterfaceClient(serve(t, l))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	events, err := to.WatchEvents(ctx, &pb.WatchEventsRequest{Group: "web"})
	if err != nil {
		t.Fatal(err)
	}
	for _, missed := range []int32{3, 0} {
		e, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.GetGroup() != "web" || e.GetMissed() != missed {
			t.Errorf("got %v, want an event of web with %d missed", e, missed)
		}
	}
}

func TestNotifyReady_IsAcceptedOnlyFromProcessItself(t *testing.T) {
	l := &fakeLauncher{pid: os.Getpid()}
	to := pb.NewLauncherNotificationInterfaceClient(serve(t, l))
	_, err := to.NotifyReady(t.Context(), &pb.ReadyNotification{ProcessId: "web-1"})
	wantCode(t, "by the process", err, codes.OK)

	other := &fakeLauncher{pid: os.Getpid() + 1}
	to = pb.NewLauncherNotificationInterfaceClient(serve(t, other))
	_, err = to.NotifyReady(t.Context(), &pb.ReadyNotification{ProcessId: "web-1"})
	wantCode(t, "by another process", err, codes.PermissionDenied)
	if l.ready != 1 || other.ready != 0 {
		t.Errorf("notifications: %d by the process, want 1, and %d by another, want 0", l.ready, other.ready)
	}
}

// On a socket for the processes of another user, only processes that run as that user notify, and
// there are no calls of operators.
func TestServeUser_AcceptsOnlyNotificationsOfProcessesOfUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &fakeLauncher{pid: os.Getpid(), uid: os.Geteuid()}
	server := admin.New(l)
	as := &proc.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	socket := filepath.Join(dir, "socket")
	for range 2 { // the second call of ServeUser finds that the socket is served already
		if err := server.ServeUser(socket, as); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(peer.Credentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	to := pb.NewLauncherNotificationInterfaceClient(conn)
	_, err = to.NotifyReady(t.Context(), &pb.ReadyNotification{ProcessId: "web-1"})
	wantCode(t, "by the process", err, codes.OK)
	l.uid = -1
	_, err = to.NotifyReady(t.Context(), &pb.ReadyNotification{ProcessId: "web-1"})
	wantCode(t, "for a process of the launcher's user", err, codes.PermissionDenied)
	_, err = pb.NewLauncherAdminInterfaceClient(conn).StopProcess(t.Context(), &pb.StopProcessRequest{ProcessId: "web-1"})
	wantCode(t, "a call of an operator", err, codes.Unimplemented)
	if l.ready != 1 || l.stopped != 0 {
		t.Errorf("%d notifications, want 1, and %d stops, want 0", l.ready, l.stopped)
	}
	server.Stop()
	if err := server.ServeUser(filepath.Join(dir, "later"), as); err == nil {
		t.Error("a server that has been stopped serves another socket")
	}
}

// always is a listener that accepts a connection at each call of Accept.
type always struct {
	net.Listener
	accepted int
}

func (l *always) Accept() (net.Conn, error) {
	l.accepted++
	return net.Dial("unix", l.Addr().String())
}

// A listener that is limited to one connection accepts the next one only when that one is closed.
func TestLimit_AcceptsConnectionWhenOneIsClosed(t *testing.T) {
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	unlimited := &always{Listener: ln}
	limited := admin.Limit(unlimited, 1)
	for range 2 {
		conn, err := limited.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		conn.Close() // a second Close of the same connection must not free the slot of another one
	}
	conn, err := limited.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	limited.Close() // ends the next Accept, which would wait for a slot
	if _, err := limited.Accept(); !errors.Is(err, net.ErrClosed) || unlimited.accepted != 3 {
		t.Errorf("after Close: %v, %d connections, want 3", err, unlimited.accepted)
	}
}
