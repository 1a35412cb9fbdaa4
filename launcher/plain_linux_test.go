package launcher_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/load"
)

// program returns a group of processes that know nothing of the launcher, with the default
// protocol. The test fails if the program is not installed.
func program(t *testing.T, command ...string) launcher.GroupConfig {
	t.Helper()
	if _, err := exec.LookPath(command[0]); err != nil {
		t.Fatalf("%v; install it to run this test", err)
	}
	g := group("main", 1, "")
	g.Command, g.Env, g.Protocol = command, nil, ""
	return g
}

// bash returns a group of one shell script.
func bash(t *testing.T, lines ...string) launcher.GroupConfig {
	return program(t, "/bin/bash", "-c", strings.Join(lines, "\n"))
}

// quick returns a probe that is made often, and fails only after many failures.
func quick(p launcher.Probe) launcher.Probe {
	p.Period, p.Timeout, p.FailureThreshold = 20*time.Millisecond, 10*time.Second, 1000
	return p
}

// awaits gives a group a startup probe that succeeds when the returned file exists. The file is
// made once the process has sent a message. Before that, the launcher does not take the process for
// one that sends no messages, however slow the machine is.
func awaits(t *testing.T, g *launcher.GroupConfig) (file string) {
	file = filepath.Join(t.TempDir(), "said")
	g.StartupProbe = quick(launcher.Probe{Exec: launcher.ExecAction{Command: []string{"test", "-e", file}}})
	g.HealthCheckTimeout = tooLong
	return file
}

// waitForStatus asks for the status of the process until want accepts it.
func (h *harness) waitForStatus(id, what string, want func(st launcher.Status) bool) launcher.Status {
	h.t.Helper()
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) {
		st, err := h.Process(id)
		if err == nil && want(st) {
			return st
		}
		if time.Now().After(late) {
			h.t.Fatalf("%s: %+v\n%s", what, st, h.story())
		}
	}
}

// webTable is a router whose clients connect by TCP to the port of a process.
type webTable struct{ table }

func (r *webTable) dial(ctx context.Context) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.here {
		return new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", i.Port))
	}
	return nil, fmt.Errorf("no process is registered")
}

// nginx, which knows nothing of the launcher, is ready by its probe at a port of its own, and is
// rolled under load without a lost request.
func TestAuto_RollOfNginxLosesNoRequest(t *testing.T) {
	template := filepath.Join(t.TempDir(), "nginx.conf")
	text := "daemon off; worker_processes 1; pid {dir}/{id}.pid; error_log stderr;\nevents {}\nhttp { access_log off; server { listen 127.0.0.1:{port}; " +
		"location / { return 200 'hello'; } location /healthz { return 204; } } }\n"
	if err := os.WriteFile(template, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatalf("%v; install it to run this test", err)
	}
	g := bash(t, "sed 's:{dir}:{dir}:; s:{id}:{id}:; s:{port}:{port}:' "+template+" >{dir}/{id}.conf")
	// The launcher replaces placeholders in the script, too. So the script has to write the
	// placeholders of the template in two parts.
	g.Command[2] = `sed "s:{d""ir}:{dir}:; s:{i""d}:{id}:; s:{po""rt}:{port}:" ` + template + " >{dir}/{id}.conf; exec " + nginx + " -e stderr -c {dir}/{id}.conf"
	g.Desired, g.Shutdown.StopSignals, g.Shutdown.DeregisterDelay = 2, []string{"SIGQUIT"}, 100*time.Millisecond
	g.ReadinessProbe = quick(launcher.Probe{HTTPGet: launcher.HTTPGetAction{Path: "/healthz", Port: "{port}"}})
	router := &webTable{}
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: router}).ready()
	var ledger load.Ledger
	loaded, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() { ledger.Ask(loaded, &load.Client{Dial: router.dial}, nil) })
	}
	for range 2 {
		if err := h.Restart(soon(t), "main", "test"); err != nil {
			t.Fatalf("%v\n%s", err, h.story())
		}
	}
	stop()
	clients.Wait()
	if requests, _ := ledger.Sent(); requests == 0 || len(ledger.Failures()) > 0 {
		t.Errorf("of %d requests, %d are lost: %v", requests, len(ledger.Failures()), ledger.Failures())
	}
	testkit.Equal(t, "outcome", h.stopAndWait("main-5").Outcome, launcher.Clean)
}

// redis-server sends READY=1 when it has loaded its data, and is stopped by SIGTERM.
func TestAuto_RecognizesNotifyMessagesOfRedis(t *testing.T) {
	g := program(t, "redis-server", "--supervised", "auto", "--port", "{port}", "--save", "", "--dir", t.TempDir())
	// Redis answers after it has sent READY=1. Until then it is not taken for a program that says
	// nothing, however slow the machine is.
	g.StartupProbe = quick(launcher.Probe{Exec: launcher.ExecAction{Command: []string{"redis-cli", "-p", "{port}", "ping"}}})
	h := launch(t, g).ready()
	st := h.waitForStatus("main-1", "its status says that it is ready", func(st launcher.Status) bool { return st.State == launcher.Ready })
	if !strings.Contains(st.Message, "Ready to accept connections") {
		t.Errorf("the message is %q", st.Message)
	}
	st = h.stopAndWait("main-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
	testkit.Equal(t, "exit", st.Exit, "exit status 0")
}

// A program with the client is recognized: it is ready when it says so, is asked what it would have
// to drain, and is stopped and rolled by the lifecycle protocol.
func TestAuto_RecognizesLifecycleProtocol(t *testing.T) {
	g := runners("web", 1)
	g.Protocol = ""
	started := awaits(t, &g)
	h := launch(t, g)
	h.waitForStatus("web-1", "its message says what it does", func(st launcher.Status) bool { return st.Message == "clean" })
	if err := os.WriteFile(started, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "message", h.waitForState("web-1", launcher.Ready).Message, "clean")
	h.waitForAnswer("web-1")
	if err := h.Restart(soon(t), "web", "test"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	testkit.Equal(t, "outcome", h.waitForEnd("web-1").Outcome, launcher.Clean)
	testkit.Equal(t, "signals", h.count(launcher.Signalled), 0)
}

// A script that says nothing is ready after a second, and is stopped by SIGTERM.
func TestAuto_ScriptThatSendsNoMessageIsReadyAfterOneSecond(t *testing.T) {
	h := launch(t, bash(t, `trap 'exit 0' TERM`, `while :; do sleep 0.1; done`))
	e := h.waitForState("main-1", launcher.Ready)
	if e.Took < time.Second {
		t.Errorf("it is ready after %v", e.Took)
	}
	st := h.stopAndWait("main-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
	if i := slices.IndexFunc(h.events, func(e launcher.Event) bool { return e.Kind == launcher.Signalled }); i < 0 || h.events[i].Message != "SIGTERM: the process does not use the lifecycle protocol" {
		t.Errorf("it was not stopped by SIGTERM\n%s", h.story())
	}
}

// A script that uses systemd-notify is ready when it says so, with its status, and its descendants
// may speak for it.
func TestAuto_ScriptIsReadyWhenSystemdNotifySaysSo(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	g := bash(t)
	said := awaits(t, &g)
	g.Command[2] = strings.Join([]string{`trap 'systemd-notify --stopping --status=bye; exit 0' TERM`, `systemd-notify --status="waiting for the gate"`, "touch " + said,
		"read line <" + gate, `systemd-notify --ready --status="open"`, `while :; do sleep 0.1; done`}, "\n")
	h := launch(t, g)
	h.waitForStatus("main-1", "its first status", func(st launcher.Status) bool { return st.Message == "waiting for the gate" })
	if err := os.WriteFile(gate, []byte("open\n"), 0); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "message", h.waitForState("main-1", launcher.Ready).Message, "open")
	testkit.Equal(t, "outcome", h.stopAndWait("main-1").Outcome, launcher.Clean)
}

// A message on the socket of a process has no effect if it comes from a process that the launcher
// has not started.
func TestNotifySocket_IgnoresMessageOfProcessThatLauncherDidNotStart(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	g := bash(t, "read line <"+gate, "systemd-notify --status=later", "exec sleep 3600")
	g.Protocol, g.HealthCheckTimeout = launcher.Notify, time.Hour
	h := launch(t, g)
	h.waitForStatus("main-1", "it runs", func(st launcher.Status) bool { return st.PID != 0 })
	cmd := exec.Command("systemd-notify", "--ready") // systemd-notify returns when the launcher has handled the message
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(h.dir, "main-1.note"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(gate, []byte("open\n"), 0); err != nil {
		t.Fatal(err)
	}
	st := h.waitForStatus("main-1", "its own message, which came after the foreign one", func(st launcher.Status) bool { return st.Message == "later" })
	testkit.Equal(t, "state", st.State, launcher.Spawning)
}

// A daemon that names its main process with MAINPID goes on when the process that was started
// exits. Signals go to the named process, and the end of that one counts as the end.
func TestNotify_FollowsMainPID(t *testing.T) {
	// The first process waits at this pipe. When the process that MAINPID names is ready, it writes
	// to the pipe, and the first process exits.
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h := launch(t, bash(t, `setsid bash -c 'trap "exit 0" TERM; systemd-notify --ready --pid=$$ --status=serving; echo up >`+fifo+`; while :; do sleep 0.1; done' </dev/null &`, "read line <"+fifo)).ready()
	first := h.waitForStatus("main-1", "it has another pid", func(st launcher.Status) bool { return st.Message == "serving" && st.State == launcher.Ready })
	if command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", first.PID)); err != nil || !strings.Contains(string(command), "trap") || strings.Contains(string(command), "setsid") {
		t.Errorf("the pid %d is that of %q, %v", first.PID, command, err)
	}
	testkit.Equal(t, "events", h.count(launcher.MainProcess), 1)
	st := h.stopAndWait("main-1")
	if st.State != launcher.Gone && st.Outcome != launcher.Clean { // before Linux 6.15, the exit status of the named process cannot be read
		t.Errorf("state %v, outcome %v", st.State, st.Outcome)
	}
	testkit.Equal(t, "survivors", len(st.Survivors), 0)
	// The file cmdline of a process that has ended is empty, even if the process was not reaped.
	if command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", first.PID)); len(command) > 0 {
		t.Errorf("pid %d is alive: %q", first.PID, command)
	}
}

// A process that stops sending WATCHDOG=1 is replaced.
func TestWatchdog_ReplacesSilentProcess(t *testing.T) {
	g := bash(t)
	g.Command[2] = `systemd-notify --ready --status="$WATCHDOG_USEC"; touch ` + awaits(t, &g) + `; systemd-notify WATCHDOG=1; exec sleep 3600`
	g.Watchdog = time.Second
	h := launch(t, g)
	testkit.Equal(t, "message", h.waitForState("main-1", launcher.Ready).Message, "1000000")
	testkit.Equal(t, "reason", h.waitForState("main-1", launcher.Unhealthy).Message, "unhealthy: the process has not sent WATCHDOG=1 within 1s")
	h.waitForState("main-2", launcher.Ready)
}

// With the protocol Auto, if the old processes have sent READY=1, a roll waits until a new process
// has sent it, too. Otherwise the roll would stop old processes although their replacements are
// still starting.
func TestAuto_RollWaitsForReadyReportIfOldProcessesSentOne(t *testing.T) {
	g := bash(t)
	g.Command[2] = "systemd-notify --ready; touch " + awaits(t, &g) + "; exec sleep 3600"
	h := launch(t, g).ready()
	mute := g
	mute.StartupProbe = launcher.Probe{}
	mute.Command, mute.HealthCheckTimeout = []string{"sleep", "3600"}, 3*time.Second
	err := h.Roll(soon(t), mute, "test")
	if err == nil || !strings.Contains(err.Error(), "earlier processes of the group were ready by protocol notify") {
		t.Errorf("the roll has ended with %v", err)
	}
	if st, err := h.Process("main-1"); err != nil || st.State != launcher.Ready {
		t.Errorf("the old process is %v, %v", st.State, err)
	}
}

// While the readiness probe fails, the process is WARMING and out of routing. When it succeeds
// again, the process is back.
func TestProbe_ProcessIsOutOfRoutingWhileReadinessProbeFails(t *testing.T) {
	healthy := filepath.Join(t.TempDir(), "healthy")
	touch := func() {
		if err := os.WriteFile(healthy, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch()
	g := bash(t, "exec sleep 3600")
	g.ReadinessProbe = quick(launcher.Probe{Exec: launcher.ExecAction{Command: []string{"test", "-f", healthy}}})
	g.ReadinessProbe.FailureThreshold = 2
	router := &table{moved: make(chan string, 10)}
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: router}).ready()
	testkit.Equal(t, "router", <-router.moved, "add main-1")
	os.Remove(healthy)
	testkit.Equal(t, "router", <-router.moved, "remove main-1")
	e := h.waitForState("main-1", launcher.Warming)
	testkit.Equal(t, "message", e.Message, "the readiness probe, exec test, has failed 2 times in a row: exit status 1")
	h.waitForStatus("main-1", "the group has no ready process", func(launcher.Status) bool {
		health, _ := h.GroupHealth("main")
		return health.Ready == 0 && !health.Healthy
	})
	touch()
	testkit.Equal(t, "router", <-router.moved, "add main-1")
	e = h.waitForState("main-1", launcher.Ready)
	testkit.Equal(t, "time from the start", e.Took, time.Duration(0))
	h.ready()
	testkit.Equal(t, "processes that were started", h.count(launcher.Restart), 0)
	s := h.Stats().Groups["main"]
	testkit.Equal(t, "starts that were measured", s.Startup.Count, uint64(1))
	testkit.Equal(t, "failures to become ready", s.ReadinessFailures, uint64(0))
}

// A process whose liveness probe fails is stopped in good order, and replaced.
func TestProbe_FailedLivenessReplacesProcess(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad-main-1")
	g := bash(t, `trap 'exit 0' TERM`, `while :; do sleep 0.1; done`)
	g.LivenessProbe = quick(launcher.Probe{Exec: launcher.ExecAction{Command: []string{"/bin/sh", "-c", "echo it is $SWANSONG_PROCESS_ID; test ! -f " + filepath.Dir(bad) + "/bad-{id}"}}})
	g.LivenessProbe.FailureThreshold = 1
	h := launch(t, g).ready()
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "reason", h.waitForState("main-1", launcher.Unhealthy).Message, "unhealthy: the liveness probe, exec /bin/sh, has failed: exit status 1: it is main-1")
	h.waitForState("main-2", launcher.Ready)
	testkit.Equal(t, "outcome", h.waitForEnd("main-1").Outcome, launcher.Clean)
}

// A check that hangs does not keep the process from being stopped, and is ended with what it has
// started.
func TestProbe_HangingCheckDoesNotDelayStop(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	g := bash(t, "exec sleep 3600")
	g.LivenessProbe = launcher.Probe{Exec: launcher.ExecAction{Command: []string{"/bin/sh", "-c", "sleep 3600 & echo $! >" + pids + "; wait"}}, Timeout: time.Hour}
	h := launch(t, g).ready()
	var pid int
	h.waitForStatus("main-1", "the check runs", func(launcher.Status) bool {
		text, _ := os.ReadFile(pids)
		n, _ := fmt.Sscan(string(text), &pid)
		return n == 1
	})
	testkit.Equal(t, "outcome", h.stopAndWait("main-1").Outcome, launcher.Clean)
	h.close()
	// The file cmdline of a process that has ended is empty, even if the process was not reaped.
	if command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); len(command) > 0 {
		t.Errorf("the process %d of the check is alive: %q", pid, command)
	}
}

// {port} differs for each process, also in probes and in the environment.
func TestPort_DiffersForEachProcess(t *testing.T) {
	g := program(t, "python3", "-c", "import http.server, os; http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), http.server.SimpleHTTPRequestHandler).serve_forever()")
	g.Env, g.WorkDir, g.Desired = []string{"PORT={port}"}, t.TempDir(), 2
	if err := os.WriteFile(filepath.Join(g.WorkDir, "name"), []byte("value"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.StartupProbe = quick(launcher.Probe{TCPSocket: launcher.TCPSocketAction{Port: "{port}"}})
	g.LivenessProbe = quick(launcher.Probe{HTTPGet: launcher.HTTPGetAction{Path: "/name", Port: "{port}"}})
	router := &webTable{}
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: router}).ready()
	router.mu.Lock()
	one, two := router.here["main-1"].Port, router.here["main-2"].Port
	router.mu.Unlock()
	if one == two || one < 20000 || two > 32767 {
		t.Errorf("the ports are %d and %d", one, two)
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/name", two))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	testkit.Equal(t, "answer", string(text), "value")
	http.DefaultClient.CloseIdleConnections()
	h.close()
}

// The status of a process that cannot be reached has no error message of package grpc.
func TestStatus_HasNoErrorTextOfPackageGRPCIfProcessIsUnreachable(t *testing.T) {
	g := bash(t, "exec sleep 3600")
	g.Protocol, g.HealthCheckTimeout, g.Restart.Policy = launcher.GRPC, 500*time.Millisecond, launcher.Never
	h := launch(t, g)
	testkit.Equal(t, "reason", h.waitForState("main-1", launcher.Unhealthy).Message,
		"not ready within 500ms (the process has never answered: nothing listens on the socket; if it does not serve the lifecycle protocol, set protocol signals)")
	for _, e := range h.events {
		if strings.Contains(e.Message, "desc =") || strings.Contains(e.Message, "transport:") {
			t.Errorf("an event shows %q", e.Message)
		}
	}
}

// The next launcher receives what an adopted process sends, and knows its port and its protocol:
// the process stays ready without saying so again, and its watchdog goes on.
func TestLauncherDeath_NextLauncherReceivesMessagesOfAdoptedProcess(t *testing.T) {
	said := filepath.Join(t.TempDir(), "port")
	g := bash(t, "echo {port} >"+said, "systemd-notify --ready", `while :; do systemd-notify --status="adopted" WATCHDOG=1; sleep 0.1; done`)
	g.Watchdog = 10 * time.Second
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(g)}}
	a := startAnother(t, cfg, "").checkLine("ready")
	awaitInFile(t, filepath.Join(cfg.Dir, "state.json"), `"uses":"notify"`)
	a.kill()
	router := &webTable{}
	cfg.Router = router
	h := launchWith(t, cfg).ready()
	st := h.waitForStatus("main-1", "its status arrives", func(st launcher.Status) bool { return st.Message == "adopted" })
	testkit.Equal(t, "state", st.State, launcher.Ready)
	text, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	router.mu.Lock()
	port := router.here["main-1"].Port
	router.mu.Unlock()
	testkit.Equal(t, "port", fmt.Sprintln(port), string(text))
	mute := g
	mute.Command = []string{"sleep", "3600"}
	mute = kept(mute)
	mute.HealthCheckTimeout = 2 * time.Second
	if err := h.Roll(soon(t), mute, "test"); err == nil || !strings.Contains(err.Error(), "were ready by protocol notify") {
		t.Errorf("a roll to a process that says nothing: %v", err)
	}
}

// A program can change the lists of a configuration after Start, for the next launcher. The
// launcher has copies of them.
func TestStart_CopiesConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go")
	made := bash(t, "while [ ! -e "+file+" ]; do sleep 0.1; done", "exit 3")
	g := launcher.DefaultGroup()
	g.Name, g.Command, g.Protocol, g.Job, g.Restart.Policy = made.Name, made.Command, launcher.Signals, true, launcher.Never
	g.Shutdown.SuccessCodes = []int{3}
	h := launch(t, g)
	g.Shutdown.SuccessCodes[0] = 4
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "outcome", h.waitForEnd("main-1").Outcome, launcher.Clean)
}
