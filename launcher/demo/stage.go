//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/load"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

//go:embed demo.yaml
var demoYAML string

// A stage runs the launcher in a process of its own, and knows its programs, directory and
// addresses.
type stage struct {
	dir  string
	yaml string
	mark string // the launcher and all its processes have this text in their environment, by which the demo finds them
	addr map[string]string

	launcher *exec.Cmd
	ended    chan error
	conn     *grpc.ClientConn
	admin    pb.LauncherAdminInterfaceClient
	log      *eventLog
}

// newStage builds the launcher and the programs that it runs, chooses free ports for both groups,
// and writes the launcher's file.
func newStage(ctx context.Context) (_ *stage, err error) {
	dir, err := os.MkdirTemp("", "swansong")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, mark: "SWANSONG_DEMO=" + rand.Text(), addr: map[string]string{}, ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			s.clear()
		}
	}()
	const module = "github.com/swansong-go/swansong/launcher/"
	build := exec.CommandContext(ctx, "go", "build", "-o", s.path("bin")+"/", module+"cmd/launcher", module+"cmd/testrunner", module+"examples/keyvalue-runner")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	for _, group := range []string{"keyvalue", "web"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s.addr[group] = ln.Addr().String()
		defer ln.Close() // ln stays open until the function returns, so that the two groups get different ports
	}
	var text bytes.Buffer
	if err := template.Must(template.New("demo.yaml").Parse(demoYAML)).Execute(&text, map[string]string{
		"Dir": s.path("run"), "DB": s.path("store.db"), "Keyvalue": s.addr["keyvalue"], "Web": s.addr["web"],
	}); err != nil {
		return nil, err
	}
	s.yaml = text.String()
	return s, os.WriteFile(s.path("demo.yaml"), text.Bytes(), 0o600)
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// start starts the launcher, and returns when both groups are healthy.
func (s *stage) start(ctx context.Context) error {
	output, err := os.Create(s.path("launcher.log"))
	if err != nil {
		return err
	}
	defer output.Close()
	s.launcher = exec.Command(s.path("bin/launcher"), "run", "-f", s.path("demo.yaml"))
	s.launcher.Env = append(os.Environ(), s.mark, "PATH="+s.path("bin")+":"+os.Getenv("PATH"))
	s.launcher.Stdout, s.launcher.Stderr = output, output
	if err := s.launcher.Start(); err != nil {
		return err
	}
	go func() { s.ended <- s.launcher.Wait() }()
	if s.admin, s.conn, err = launcher.Dial(s.path("run")); err != nil {
		return err
	}
	events, err := s.admin.WatchEvents(ctx, &pb.WatchEventsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if _, err := events.Header(); err != nil {
		return err
	}
	s.log = newEventLog(events)
	for {
		health, err := s.admin.GetGroupHealth(ctx, &pb.GetGroupHealthRequest{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(health.GetGroups(), func(g *pb.GroupHealth) bool { return g.GetReady() < g.GetDesired() }) {
			for _, g := range health.GetGroups() {
				fmt.Printf("   %s: %d of %d ready, at %s\n", g.GetGroup(), g.GetReady(), g.GetDesired(), s.addr[g.GetGroup()])
			}
			return nil
		}
		if err := s.waitUntil(ctx, 0, "all processes are ready", func(e *pb.Event) bool { return e.GetTo() == pb.ProcessState_READY }); err != nil {
			return err
		}
	}
}

// waitUntil waits until an event after the first n events meets the condition.
func (s *stage) waitUntil(ctx context.Context, n int, what string, meets func(*pb.Event) bool) error {
	for {
		ok, next := s.log.has(n, meets)
		if ok {
			return nil
		}
		select {
		case <-next:
		case <-s.log.ended:
			return fmt.Errorf("the launcher ended before %s", what)
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}

func enters(id string, state pb.ProcessState) func(*pb.Event) bool {
	return func(e *pb.Event) bool { return e.GetProcessId() == id && e.GetTo() == state }
}

// restart replaces the processes of a group.
func (s *stage) restart(ctx context.Context, group string) error {
	if _, err := s.admin.RestartGroup(ctx, &pb.RestartGroupRequest{Group: group, Reason: "a new build", Wait: true}); err != nil {
		return err
	}
	return s.waitUntil(ctx, 0, group+" has been replaced", func(e *pb.Event) bool { return e.GetGroup() == group && e.GetKind() == "roll-done" })
}

// kill kills the only process of a group, and returns when another one is ready.
func (s *stage) kill(ctx context.Context, group string, killed *interruption) error {
	health, err := s.admin.GetGroupHealth(ctx, &pb.GetGroupHealthRequest{Group: group})
	if err != nil {
		return err
	}
	all := health.GetGroups()[0].GetProcesses()
	i := slices.IndexFunc(all, func(p *pb.ProcessStatus) bool { return p.GetState() == pb.ProcessState_READY })
	if i < 0 {
		return fmt.Errorf("no process of %s is ready", group)
	}
	n := len(s.log.events())
	killed.begin()
	if err := syscall.Kill(int(all[i].GetPid()), syscall.SIGKILL); err != nil {
		return err
	}
	if err := s.waitUntil(ctx, n, all[i].GetProcessId()+" is reaped", enters(all[i].GetProcessId(), pb.ProcessState_CRASHED)); err != nil {
		return err
	}
	killed.end()
	return s.waitUntil(ctx, n, group+" is healthy", func(e *pb.Event) bool { return e.GetGroup() == group && e.GetKind() == "healthy" })
}

// trouble makes one process of the group web show a behavior, given by its name, and stops that
// process.
func (s *stage) trouble(ctx context.Context, behavior string, want pb.ProcessState) error {
	c := &load.Client{Dial: s.dial("web")}
	answer, err := c.Do(ctx, "PUT", "/behavior/"+behavior, "")
	if err != nil || answer.Status != 200 {
		return fmt.Errorf("%d %s: %v", answer.Status, answer.Body, err)
	}
	id := strings.TrimSpace(answer.Body)
	if _, err := s.admin.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: id, Reason: "demo of behavior " + behavior}); err != nil {
		return err
	}
	return s.waitUntil(ctx, 0, fmt.Sprintf("%s is %v", id, want), enters(id, want))
}

func (s *stage) dial(group string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.addr[group])
	}
}

// end stops the load and the launcher, and returns what count has found, such as lost writes.
func (s *stage) end(ctx context.Context, l *allLoad) (result, error) {
	l.stop()
	s.launcher.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.ended:
		s.ended <- err
		if err != nil {
			return result{}, fmt.Errorf("the launcher: %w", err)
		}
	case <-ctx.Done():
		return result{}, context.Cause(ctx)
	}
	<-s.log.ended
	return count(s, l)
}

// failed returns err together with the log of the launcher.
func (s *stage) failed(err error) error {
	text, _ := os.ReadFile(s.path("launcher.log"))
	return fmt.Errorf("%w\nThe launcher's log:\n%s", err, text)
}

// clear stops the launcher, and removes the directory of the stage.
func (s *stage) clear() {
	if s.launcher != nil {
		select {
		case <-s.ended:
		default:
			s.launcher.Process.Signal(syscall.SIGTERM)
			select {
			case <-s.ended:
			case <-time.After(20 * time.Second):
				s.launcher.Process.Kill()
				<-s.ended
			}
		}
	}
	if s.conn != nil {
		s.conn.Close()
	}
	os.RemoveAll(s.dir)
}

// An interruption is the interval in which requests may fail: it begins with kill -9 and ends when
// the launcher has reaped the process.
type interruption struct {
	mu       sync.Mutex
	from, to time.Time
	cut      int
}

func (k *interruption) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.from = time.Now()
}

func (k *interruption) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.to = time.Now()
}

// allowsRetry reports whether a failed request may be sent again, and counts such requests. A
// request may be sent again if it failed after the kill, and was begun before the killed process
// was reaped.
func (k *interruption) allowsRetry(began time.Time, _ error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.from.IsZero() || !k.to.IsZero() && began.After(k.to) {
		return false
	}
	k.cut++
	return true
}

func (k *interruption) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cut
}
