package launcher_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/testrunner"
	"golang.org/x/sys/unix"
)

func init() {
	// This role is a launcher that gets its configuration as an argument. It prints "ready" when
	// its groups are ready, performs one more action, and continues.
	roles["launcher"] = func(args []string) {
		var cfg launcher.Config
		if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
			panic(err)
		}
		m, err := launcher.Start(context.Background(), cfg)
		if err != nil {
			panic(err)
		}
		if err := m.Ready(context.Background()); err != nil {
			panic(err)
		}
		fmt.Println("ready")
		switch args[1] {
		case "roll":
			m.Restart(context.Background(), cfg.Groups[0].Name, "test")
		case "stop":
			for _, p := range m.Health()[0].Processes {
				m.StopProcess(p.ID, launcher.Stop{Reason: "test"})
			}
			fmt.Println("told")
		case "kill one":
			syscall.Kill(m.Health()[0].Processes[0].PID, syscall.SIGKILL)
		case "scale down, and kill one":
			all := m.Health()[0].Processes
			m.StopProcess(all[0].ID, launcher.Stop{NoReplacement: true})
			for !slices.ContainsFunc(m.Health()[0].Processes, func(st launcher.Status) bool { return st.ID == all[0].ID && st.State.Ended() }) {
				time.Sleep(time.Millisecond)
			}
			syscall.Kill(all[1].PID, syscall.SIGKILL)
		case "one fewer":
			m.StopProcess(m.Health()[0].Processes[0].ID, launcher.Stop{NoReplacement: true})
		case "stop the group":
			m.StopGroup(context.Background(), cfg.Groups[0].Name, "test")
			fmt.Println("stopped")
		case "address":
			for _, addr := range m.Addrs(cfg.Groups[0].Name) {
				fmt.Println(addr)
			}
		}
		forever()
	}
	// This role is a guardian. If a certain file exists, it kills its launcher at the moment when
	// it begins to guard.
	roles["traitor"] = func(args []string) {
		if _, err := os.Stat(args[0]); err == nil {
			launcher := os.Getppid()
			r, w, err := os.Pipe()
			if err != nil {
				panic(err)
			}
			os.Stdout = w
			go func() {
				bufio.NewReader(r).ReadString('\n')
				syscall.Kill(launcher, syscall.SIGKILL)
			}()
		}
		launcher.Guard()
	}
	// This role is a guardian that holds listeners only for a short time.
	roles["brief guardian"] = func([]string) {
		launcher.SetHoldTime(time.Millisecond)
		launcher.Guard()
	}
	// This role is a guardian that waits for the lock without a timeout.
	roles["patient guardian"] = func([]string) {
		launcher.SetLockTimeout(time.Hour)
		launcher.Guard()
	}
	// This role is a guardian that does not read the output of processes. When it has opened the
	// pipes, it creates a file.
	roles["dozing guardian"] = func(args []string) {
		in := bufio.NewReader(os.Stdin)
		in.ReadString('\n')
		fmt.Println("guarding, version 2, state file version 2")
		io.Copy(io.Discard, in) // blocks until the launcher ends
		for _, stream := range []string{"out", "err"} {
			if _, err := syscall.Open(filepath.Join(args[0], "web-1."+stream), syscall.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
				panic(err)
			}
		}
		if err := os.WriteFile(args[1], []byte("dozing"), 0o600); err != nil {
			panic(err)
		}
		forever()
	}
	// This role prints a line when it receives SIGUSR1, and ends.
	roles["last words"] = func([]string) {
		usr1 := make(chan os.Signal, 1)
		signal.Notify(usr1, syscall.SIGUSR1)
		fmt.Println("listening")
		<-usr1
		fmt.Println("last words")
		fmt.Fprintln(os.Stderr, "last complaint")
		os.Exit(3)
	}
	// This role starts fifty processes and is then a test runner. Each of the fifty is created by
	// two forks, has a session of its own and ignores SIGTERM. Each reports that it runs, because
	// the test cannot recognize a process by its environment before the process has called exec.
	roles["clan"] = func(args []string) {
		said, says, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		never, open, err := os.Pipe() // nothing is ever written to the pipe, so a read blocks
		if err != nil {
			panic(err)
		}
		there := bufio.NewReader(said)
		for range 50 {
			member := exec.Command("sh", "-c", `trap "" TERM; setsid sh -c "echo; read word <&3" &`)
			member.Stdout, member.ExtraFiles = says, []*os.File{never, open}
			if err := member.Run(); err != nil {
				panic(err)
			}
			if _, err := there.ReadString('\n'); err != nil {
				panic(err)
			}
		}
		os.Exit(testrunner.Main(args, os.Stderr))
	}
	// When this role receives SIGUSR1, it prints more than a pipe holds, and ends.
	roles["burst"] = func(args []string) {
		usr1 := make(chan os.Signal, 1)
		signal.Notify(usr1, syscall.SIGUSR1)
		go func() {
			<-usr1
			line := strings.Repeat("x", 99) + "\n"
			for range 5000 {
				os.Stdout.WriteString(line)
			}
			fmt.Println("all of it")
			os.Exit(3)
		}()
		os.Exit(testrunner.Main(args, os.Stderr))
	}
}

var (
	guardianCommand = []string{os.Args[0], "guardian"}
	briefGuardian   = guardianOf("brief guardian")
)

func guardianOf(role string) []string {
	return []string{"/usr/bin/env", asRole + "=" + role, os.Args[0], "guardian"}
}

// another is a launcher in a process of its own.
type another struct {
	*exec.Cmd
	t   *testing.T
	out *bufio.Scanner
}

// startAnother starts a launcher in a process of its own. When the launcher is ready, it performs
// the action todo.
func startAnother(t *testing.T, cfg launcher.Config, todo string) *another {
	t.Helper()
	return enclosure{}.startAnother(t, cfg, todo)
}

func (e enclosure) startAnother(t *testing.T, cfg launcher.Config, todo string) *another {
	t.Helper()
	text, err := json.Marshal(struct {
		Dir      string
		Groups   []launcher.GroupConfig
		Guardian []string
	}{cfg.Dir, cfg.Groups, cfg.Guardian})
	if err != nil {
		t.Fatal(err)
	}
	a := &another{Cmd: exec.Command(os.Args[0], string(text), todo), t: t}
	a.Env = append(os.Environ(), asRole+"=launcher", "GORACE=atexit_sleep_ms=0")
	a.Stderr = os.Stderr
	if e.dir != nil {
		a.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(e.dir.Fd())}
	}
	out, err := a.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.out = bufio.NewScanner(out)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.kill)
	return a
}

// checkLine fails the test unless the line that was read last from the launcher, or else the next
// line, is want.
func (a *another) checkLine(want string) *another {
	a.t.Helper()
	if a.out.Text() == want {
		return a
	}
	if !a.out.Scan() || a.out.Text() != want {
		a.t.Fatalf("the launcher prints %q, want %q", a.out.Text(), want)
	}
	return a
}

// line returns the next line that the launcher prints.
func (a *another) line() string {
	a.t.Helper()
	if !a.out.Scan() {
		a.t.Fatalf("the launcher prints nothing after %q: %v", a.out.Text(), a.out.Err())
	}
	return a.out.Text()
}

func (a *another) kill() {
	a.Process.Kill()
	a.Wait()
}

// killSoon kills the launcher at a random point of its life.
func (a *another) killSoon(most time.Duration) {
	time.Sleep(mathrand.N(most))
	a.kill()
}

// A brood is all processes that a test has started, directly or indirectly. They have a token in
// their environment.
type brood string

func newBrood(t *testing.T) brood {
	b := brood("BROOD=" + rand.Text())
	t.Cleanup(func() {
		for _, pid := range b.alive() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return b
}

// alive returns the sorted pids of the processes in the brood. It does not find zombies, because
// they have no environment.
func (b brood) alive() (pids []int) {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		env, _ := os.ReadFile("/proc/" + d.Name() + "/environ")
		if pid, err := strconv.Atoi(d.Name()); err == nil && bytes.Contains(env, []byte(b+"\x00")) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// gone waits until no process of the brood is left.
func (b brood) gone(t *testing.T) {
	t.Helper()
	late := time.Now().Add(tooLong)
	for {
		pids := b.alive()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			awaitEnd(t, pid, time.Until(late))
		}
		if time.Now().After(late) {
			t.Fatalf("%d processes are left", len(pids))
		}
	}
}

// awaitEnd waits for the end of a process that is not a child of the test.
func awaitEnd(t *testing.T, pid int, within time.Duration) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for late := time.Now().Add(within); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(0, int(time.Until(late).Milliseconds())))
		if n == 0 && err == nil {
			t.Errorf("pid %d does not end", pid)
			return
		}
		if err == nil {
			return
		}
	}
}

// of returns g with the token of the brood in its environment, so that the processes of g belong to
// the brood.
func (b brood) of(g launcher.GroupConfig) launcher.GroupConfig {
	g.Env = append(g.Env, string(b))
	return g
}

// kept returns the group with OnLauncherDeath set to Keep.
func kept(g launcher.GroupConfig) launcher.GroupConfig {
	g.OnLauncherDeath = launcher.Keep
	return g
}

func clan(name string) launcher.GroupConfig {
	return group(name, 1, "clan", "--process-id", "{id}", "--work-duration", "1ms")
}

// A launcher that is killed leaves no process, neither a child nor a descendant that has forked
// twice, has a session of its own and ignores SIGTERM. The guardian kills them, and without a
// guardian the next launcher does.
func TestKilledLauncher_LeavesNoProcess(t *testing.T) {
	for _, guardian := range [][]string{guardianCommand, nil} {
		name := "the guardian"
		if guardian == nil {
			name = "the next launcher"
		}
		t.Run(name, func(t *testing.T) {
			b := newBrood(t)
			cfg := launcher.Config{Dir: shortDir(t), Guardian: guardian, Groups: []launcher.GroupConfig{b.of(clan("clan"))}}
			first := startAnother(t, cfg, "").checkLine("ready")
			testkit.Equal(t, "processes", len(b.alive()), 51)
			pids := guardians(t, first.Process.Pid)
			first.kill()
			for _, pid := range pids { // when a guardian has ended, the launcher's processes have ended, too
				awaitEnd(t, pid, tooLong)
				testkit.Equal(t, "processes without a launcher", len(b.alive()), 0)
			}
			cfg.Groups = []launcher.GroupConfig{runners("web", 1)}
			launchWith(t, cfg).ready()
			if pids := b.alive(); len(pids) > 0 {
				t.Errorf("%d processes are left", len(pids))
			}
		})
	}
}

// A launcher that is killed leaves no sockets and no state file: its guardian removes them, unless
// processes are kept.
func TestKilledLauncher_LeavesNoFiles(t *testing.T) {
	b := newBrood(t)
	dir := shortDir(t)
	app := filepath.Join(shortDir(t), "app")
	web := b.of(runners("web", 2))
	web.Listen = []launcher.Listen{{Name: "app", Network: "unix", Address: app}}
	cfg := launcher.Config{Dir: dir, Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	first := startAnother(t, cfg, "").checkLine("ready")
	pids := guardians(t, first.Process.Pid)
	first.kill()
	for _, pid := range pids {
		awaitEnd(t, pid, tooLong)
	}
	var left []string
	for _, pattern := range []string{filepath.Join(dir, "*"), app} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	testkit.Equal(t, "files", left, []string(nil))
	b.gone(t)
	launchWith(t, cfg).ready()
}

// A launcher can be killed at any point of its life, twenty times in a row, without leaving
// half-started processes.
func TestKilledLauncher_LeavesNoProcessWheneverItIsKilled(t *testing.T) {
	b := newBrood(t)
	g := b.of(runners("web", 2))
	g.PreStop = []launcher.Hook{{Command: []string{"true"}}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	in := enclose(t)
	for i := range 20 {
		in.startAnother(t, cfg, []string{"", "roll", "stop"}[i%3]).killSoon(150 * time.Millisecond)
		if i%2 == 0 {
			b.gone(t)
		}
	}
	h := launchWith(t, cfg).ready()
	h.settled("web", 2)
	pids := pidsOf(h, "web")
	if diff := cmp.Diff(pids, b.alive()); diff != "" {
		t.Errorf("other processes than the launcher knows (-known +alive):\n%s", diff)
	}
	h.close()
	testkit.Equal(t, "cgroups left", in.holds(), []string(nil))
}

// The next launcher adopts each kept process once. It knows everything that the last one knew,
// except for secrets. The outcome of an adopted process is unknown.
func TestLauncherDeath_NextLauncherAdoptsProcesses(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 2)))
	g.Env = append(g.Env, "PASSWORD=hunter2")
	g.Command = append(g.Command, "--http", "")
	g.PreStop = []launcher.Hook{{Command: []string{"echo", "swordfish"}}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "").checkLine("ready")
	before := b.alive()
	testkit.Equal(t, "processes", len(before), 2)
	first.kill()

	text, err := os.ReadFile(statefile.Path(cfg.Dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "PASSWORD", "swordfish", "--http"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the state file contains %q", secret)
		}
	}
	if info, err := os.Stat(statefile.Path(cfg.Dir)); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "pids", pidsOf(h, "web"), before)
	if diff := cmp.Diff(before, b.alive()); diff != "" {
		t.Errorf("processes (-before +after):\n%s", diff)
	}
	for _, st := range h.running("web") {
		if st.State != launcher.Ready || time.Since(st.Started) > time.Hour || st.ReadyAt.Before(st.Started.Add(-time.Second)) || st.Revision != 1 {
			t.Errorf("%+v", st)
		}
	}
	if err := h.StopProcess("web-1", launcher.Stop{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	st := h.waitForEnd("web-1")
	testkit.Equal(t, "state", st.State, launcher.Gone)
	testkit.Equal(t, "outcome", st.Outcome, launcher.Unknown)
	testkit.Equal(t, "exit", st.Exit, "ended with an unknown status")
	h.ready()
	// The new process does not get the id web-2 again.
	if now := h.running("web"); len(now) != 2 || now[1].ID != "web-3" {
		t.Errorf("%+v", now)
	}
	testkit.Equal(t, "outcome of a process that was not adopted", h.stopAndWait("web-3").Outcome, launcher.Clean)
	h.close()
	names, _ := filepath.Glob(filepath.Join(cfg.Dir, "*"))
	testkit.Equal(t, "files at the end", names, []string(nil))
	b.gone(t)
}

// Clients do not notice that a launcher is killed and restarted, at any point of its life, twenty
// times in a row.
func TestKilledLauncher_ClientsOfKeptProcessesLoseNoRequest(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 2)))
	g.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	in := enclose(t)
	last := in.startAnother(t, cfg, "").checkLine("ready")
	load := startTraffic(t, g.Listen[0].Address)
	for i := range 20 {
		if i%4 == 0 {
			last.checkLine("ready")
		}
		last.killSoon(150 * time.Millisecond)
		last = in.startAnother(t, cfg, []string{"", "roll", "", "stop"}[i%4])
	}
	last.kill()
	h := launchWith(t, cfg).ready()
	h.settled("web", 2)
	requests, failures := load.stop()
	t.Logf("%d requests", requests)
	if len(failures) > 0 {
		t.Errorf("%d of %d requests failed: %v", len(failures), requests, failures[0])
	}
	if diff := cmp.Diff(pidsOf(h, "web"), b.alive()); diff != "" {
		t.Errorf("other processes than the launcher knows (-known +alive):\n%s", diff)
	}
	h.close()
	testkit.Equal(t, "cgroups left", in.holds(), []string(nil))
}

// settled waits until a group has exactly the desired processes, all of them ready.
func (h *harness) settled(group string, n int) {
	h.t.Helper()
	settled := func(launcher.Event) bool {
		health, err := h.GroupHealth(group)
		if err != nil {
			h.t.Fatal(err)
		}
		running := h.running(group)
		return len(running) == n && !slices.ContainsFunc(running, func(st launcher.Status) bool {
			return st.State != launcher.Ready || st.Revision != health.Revision
		})
	}
	if !settled(launcher.Event{}) {
		h.readUntil(fmt.Sprintf("%s has %d processes, and no others", group, n), settled)
	}
}

// Traffic consists of clients that send one request after the other, each over a new connection.
type traffic struct {
	quit chan struct{}
	all  sync.WaitGroup

	mu       sync.Mutex
	requests int
	failures []error
}

func startTraffic(t *testing.T, address string) *traffic {
	l := &traffic{quit: make(chan struct{})}
	for range 4 {
		l.all.Go(func() {
			client := &http.Client{Timeout: tooLong, Transport: &http.Transport{DisableKeepAlives: true}}
			for {
				select {
				case <-l.quit:
					return
				default:
				}
				err := fetch(client, "http://"+address)
				l.mu.Lock()
				if l.requests++; err != nil {
					l.failures = append(l.failures, err)
				}
				l.mu.Unlock()
				time.Sleep(time.Millisecond) // without pauses, the clients would keep a small machine busy
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

func fetch(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func (l *traffic) stop() (requests int, failures []error) {
	select {
	case <-l.quit:
	default:
		close(l.quit)
	}
	l.all.Wait()
	return l.requests, l.failures
}

// The launcher and all processes of a group have ended. Clients still wait for the next launcher,
// and are not refused.
func TestGuardianProcess_HoldsListenersUntilNextLauncherStarts(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1)))
	g.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	startAnother(t, cfg, "").checkLine("ready").kill()
	for _, pid := range b.alive() {
		kill(t, pid)
		awaitEnd(t, pid, tooLong)
	}
	conn, err := net.Dial("tcp", g.Listen[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\n\r\n")
	h := launchWith(t, cfg).ready()
	conn.SetReadDeadline(time.Now().Add(tooLong))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || line != "HTTP/1.0 200 OK\r\n" {
		t.Errorf("answer is %q, %v\n%s", line, err, h.story())
	}
}

// A guardian holds listeners for a limited time. If no launcher starts, it ends, and clients are
// refused.
func TestGuardianProcess_EndsIfNoNextLauncherStarts(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1)))
	g.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{g}}
	cfg.Guardian = briefGuardian
	first := startAnother(t, cfg, "").checkLine("ready")
	pids := guardians(t, first.Process.Pid)
	testkit.Equal(t, "guardians", len(pids), 1)
	first.kill()
	for _, pid := range b.alive() {
		kill(t, pid)
	}
	awaitEnd(t, pids[0], tooLong)
	if conn, err := net.Dial("tcp", g.Listen[0].Address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after the guardian has ended: %v, want connection refused", err)
		if err == nil {
			conn.Close()
		}
	}
	launchWith(t, cfg).ready() // the new launcher finds no process to adopt, so it starts one
}

// The next launcher takes the lock of the directory and tells the guardian to end. The guardian
// must not wait for that lock, because the launcher waits for the guardian.
func TestGuardianProcess_EndsForNextLauncherWithoutWaitingForItsLock(t *testing.T) {
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianOf("patient guardian"), Groups: []launcher.GroupConfig{newBrood(t).of(runners("web", 1))}}
	first := startAnother(t, cfg, "").checkLine("ready")
	guardian := guardians(t, first.Process.Pid)[0]
	dir, err := os.Open(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	locked := make(chan error)
	go func() { locked <- unix.Flock(int(dir.Fd()), unix.LOCK_EX) }() // Flock waits until the launcher, which holds the lock, has ended
	first.kill()
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(guardian, 0)
	if err != nil {
		return // the guardian has ended
	}
	defer unix.Close(fd)
	for late := time.Now().Add(tooLong); ; {
		unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0) // repeated, because at first the guardian might not handle signals yet
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10); n > 0 {
			return
		}
		if time.Now().After(late) {
			t.Fatal("the guardian waits for the lock")
		}
	}
}

// A launcher dies before it has learned that its guardian runs. The guardian does its work
// nevertheless, and the next launcher finds the guardian.
func TestGuardianProcess_HoldsListenersIfLauncherIsKilledDuringStart(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1)))
	g.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	dir := shortDir(t)
	betray := filepath.Join(dir, "betray")
	cfg := launcher.Config{Dir: filepath.Join(dir, "l"), Groups: []launcher.GroupConfig{g},
		Guardian: []string{"/usr/bin/env", asRole + "=traitor", os.Args[0], betray, "guardian"}}
	last := startAnother(t, cfg, "").checkLine("ready")
	if err := os.WriteFile(betray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := guardians(t, last.Process.Pid)
	testkit.Equal(t, "guardians", len(first), 1)
	kill(t, first[0])
	last.Wait()
	for _, pid := range b.alive() {
		kill(t, pid)
		awaitEnd(t, pid, tooLong)
	}
	left := commands(t, betray)
	if len(left) != 1 {
		t.Fatalf("%d guardians without a launcher", len(left))
	}
	conn, err := net.Dial("tcp", g.Listen[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\n\r\n")
	cfg.Guardian = guardianCommand
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "guardians of the killed launcher", commands(t, betray), []int(nil))
	conn.SetReadDeadline(time.Now().Add(tooLong))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || line != "HTTP/1.0 200 OK\r\n" {
		t.Errorf("answer is %q, %v\n%s", line, err, h.story())
	}
}

// A launcher without kept processes is killed while it starts its guardian. Afterwards no process
// and no file is left.
func TestGuardianProcess_LeavesNothingIfLauncherIsKilledDuringStart(t *testing.T) {
	b := newBrood(t)
	dir := shortDir(t)
	betray := filepath.Join(dir, "betray")
	cfg := launcher.Config{Dir: filepath.Join(dir, "l"), Groups: []launcher.GroupConfig{b.of(runners("web", 1))},
		Guardian: []string{"/usr/bin/env", asRole + "=traitor", os.Args[0], betray, "guardian"}}
	last := startAnother(t, cfg, "").checkLine("ready")
	if err := os.WriteFile(betray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, guardians(t, last.Process.Pid)[0])
	last.Wait()
	for _, pid := range commands(t, betray) {
		awaitEnd(t, pid, tooLong)
	}
	left, _ := filepath.Glob(filepath.Join(cfg.Dir, "*"))
	testkit.Equal(t, "files", left, []string(nil))
	b.gone(t)
}

// commands returns the pids of the processes whose command line has the argument arg.
func commands(t *testing.T, arg string) (pids []int) {
	t.Helper()
	for _, p := range processes(t) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if bytes.Contains(text, []byte("\x00"+arg+"\x00")) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// The next launcher continues the stop of a process, with the same reason, even if the process does
// not react.
func TestLauncherDeath_NextLauncherContinuesStop(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1, "--behavior", "hang")))
	g.Shutdown.Grace, g.Shutdown.Max = 15*time.Second, 15*time.Second
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "stop").checkLine("ready").checkLine("told")
	awaitInFile(t, statefile.Path(cfg.Dir), `"stop_at":`)
	first.kill()
	if err := syscall.Kill(b.alive()[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The next launcher has short limits, so it soon ends the process that is stuck.
	shutdown := &cfg.Groups[0].Shutdown
	shutdown.Grace, shutdown.GraceEnforced, shutdown.SIGTERMTimeout = 100*time.Millisecond, true, 100*time.Millisecond
	h := launchWith(t, cfg)
	next := h.readUntil("web-1 changes", func(e launcher.Event) bool { return e.Process == "web-1" && e.Kind == launcher.Transition })
	if next.To != launcher.ShutdownRequested {
		t.Fatalf("state is %v", next.To)
	}
	st := h.waitForEnd("web-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Unknown)
	testkit.Equal(t, "reason", st.Reason, "test")
	testkit.Equal(t, "survivors", len(st.Survivors), 0)
	if len(b.alive()) > 1 { // one process may be alive: the replacement
		t.Errorf("alive: %v", b.alive())
	}
}

// The deadlines of a process that was asked to stop continue under the next launcher, and messages
// state the whole time that it has had.
func TestLauncherDeath_NextLauncherKeepsStopDeadline(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1, "--behavior", "hang")))
	g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "stop").checkLine("ready").checkLine("told")
	awaitInFile(t, statefile.Path(cfg.Dir), `"asked_at":`)
	asked := time.Now() // the process was asked to stop at this time or earlier
	first.kill()
	// The new grace period is so short that it has already passed, but the process can ask for more
	// time once.
	shutdown := &cfg.Groups[0].Shutdown
	shutdown.Grace, shutdown.Poll, shutdown.SIGTERMTimeout, shutdown.GraceEnforced = time.Millisecond, 2*time.Second, time.Millisecond, true
	h := launchWith(t, cfg)
	adopted := h.readUntil("the adoption", func(e launcher.Event) bool { return e.Kind == launcher.Adopted })
	e := h.readUntil("the signal", func(e launcher.Event) bool { return e.Kind == launcher.Signalled })
	took, ok := strings.CutPrefix(e.Message, "SIGTERM to all: the grace period is over, after ")
	took, _, _ = strings.Cut(took, ";")
	d, err := time.ParseDuration(took)
	if least := adopted.Time.Sub(asked); !ok || err != nil || d < least.Truncate(time.Millisecond) {
		t.Errorf("%q, and it was asked %v before it was adopted, or more (%v)", e.Message, least, err)
	}
	h.waitForEnd("web-1")
}

// The next launcher obeys an order to scale down that the earlier one was given. If the same order
// is given again for the process that is still stopping, it does not count again. But if the
// configuration has been changed to another number of processes, that number counts.
func TestLauncherDeath_NextLauncherDoesNotUndoScaleDown(t *testing.T) {
	for _, c := range []struct{ loaded, desired int }{{2, 1}, {3, 3}} {
		t.Run(fmt.Sprintf("%d loaded", c.loaded), func(t *testing.T) {
			b := newBrood(t)
			g := kept(b.of(runners("web", 2, "--behavior", "hang")))
			g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
			cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}
			first := startAnother(t, cfg, "one fewer").checkLine("ready")
			awaitInFile(t, statefile.Path(cfg.Dir), `"stop_at":`)
			first.kill()
			cfg.Groups[0].Desired = c.loaded
			h := launchWith(t, cfg)
			stops := h.readUntil("a process continues to stop", func(e launcher.Event) bool { return e.To == launcher.ShutdownRequested }).Process
			for _, when := range []string{"then", "after the same order"} {
				health, _ := h.GroupHealth("web")
				testkit.Equal(t, "desired "+when, health.Desired, c.desired)
				if err := h.StopProcess(stops, launcher.Stop{NoReplacement: true}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A finished job is not run again by the next launcher, whether other processes of its group are
// adopted or none is left. It is run again if its configuration has changed or if it was not kept.
func TestLauncherDeath_FinishedJobIsNotRunAgain(t *testing.T) {
	const policy = "; with restart policy never they are started again only on request"
	const one = "; with restart policy never it is started again only on request"
	done := kept(group("job", 2, "exit", "0"))
	other := done
	other.Env = append(slices.Clone(done.Env), "OTHER=1")
	more := done
	more.Desired = 3
	for name, c := range map[string]struct {
		was, is launcher.GroupConfig
		todo    string
		next    string // id of the process that the next launcher starts; empty if it starts none
		message string // expected message of the group; empty if the next launcher starts a process
	}{
		"all":                  {done, done, "nothing", "", "completed: all 2 processes have finished" + policy},
		"one of two":           {kept(runners("job", 2)), kept(runners("job", 2)), "kill one", "", "1 of 2 has finished, with a failure" + one},
		"one, scaled down":     {kept(runners("job", 2)), kept(runners("job", 2)), "scale down, and kill one", "", "completed: the process has finished, with a failure" + one + "; an operator has scaled the group down by 1 from desired_instances (2)"},
		"of another command":   {done, other, "nothing", "job-3", ""},
		"more of them":         {done, more, "nothing", "job-3", ""},
		"not kept, all of two": {group("job", 2, "exit", "0"), done, "nothing", "job-1", ""},
		"before a boot":        {done, done, "nothing", "job-3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.was.Job, c.is.Job = true, true
			c.was.Restart.Policy, c.is.Restart.Policy = launcher.Never, launcher.Never
			cfg := launcher.Config{Dir: shortDir(t), Guardian: briefGuardian, Groups: []launcher.GroupConfig{c.was}}
			first := startAnother(t, cfg, c.todo).checkLine("ready")
			awaitInFile(t, statefile.Path(cfg.Dir), map[bool]string{true: `"finished":2`, false: `"finished":1`}[c.todo == "nothing"])
			guardian := guardians(t, first.Process.Pid)[0]
			first.kill()
			if c.todo != "kill one" { // the guardian ends when no process is left
				awaitEnd(t, guardian, tooLong)
			}
			if name == "before a boot" {
				bootAnew(t, statefile.Path(cfg.Dir))
			}
			cfg.Groups = []launcher.GroupConfig{c.is}
			h := launchWith(t, cfg)
			if c.next != "" {
				h.waitForEnd(c.next)
				return
			}
			h.ready()
			health, _ := h.GroupHealth("job")
			testkit.Equal(t, "message", health.Message, c.message)
			testkit.Equal(t, "processes", len(health.Processes), health.Desired)
		})
	}
}

// bootAnew changes the boot id in the state file, as if the machine had been rebooted.
func bootAnew(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	var state map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(text, &file), json.Unmarshal(file["state"], &state)); err != nil {
		t.Fatal(err)
	}
	state["boot"] = json.RawMessage(`"another"`)
	inside, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	file["state"], file["sha256"] = inside, fmt.Appendf(nil, `"%x"`, sha256.Sum256(inside))
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitInFile waits until a file contains a text, and returns the file.
func awaitInFile(t *testing.T, path, want string) string {
	t.Helper()
	for late := time.Now().Add(tooLong); ; {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text), want) {
			return string(text)
		}
		if time.Now().After(late) {
			t.Fatalf("%s does not contain %s: %s", path, want, text)
		}
		time.Sleep(time.Millisecond)
	}
}

// Kept processes whose group or configuration has changed are stopped or replaced.
func TestLauncherDeath_NextLauncherStopsOrReplacesProcessesOfChangedGroups(t *testing.T) {
	b := newBrood(t)
	web, old := kept(b.of(runners("web", 1))), kept(b.of(runners("old", 1)))
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web, old}}
	startAnother(t, cfg, "").checkLine("ready").kill()

	web.Env = append(web.Env, "NEW=1")
	cfg.Groups = []launcher.GroupConfig{web}
	h := launchWith(t, cfg)
	testkit.Equal(t, "outcome of the old group", h.waitForEnd("old-1").Outcome, launcher.Unknown)
	testkit.Equal(t, "outcome of the old revision", h.waitForEnd("web-1").Outcome, launcher.Unknown)
	h.ready()
	running := h.running("web")
	if len(running) != 1 || running[0].ID != "web-2" || running[0].Revision != 2 {
		t.Errorf("%+v", running)
	}
	testkit.Equal(t, "processes of the old group", len(h.running("old")), 0)
}

// printedUnseen lets a process print more than a pipe holds, and end, while no launcher runs. It
// returns the log after the next launcher has completed it.
func printedUnseen(t *testing.T, env ...string) []byte {
	t.Helper()
	b := newBrood(t)
	g := kept(b.of(group("web", 1, "burst", "--process-id", "{id}", "--work-duration", "1ms")))
	dir := shortDir(t)
	g.Log = launcher.LogConfig{Path: filepath.Join(dir, "log"), Buffer: 4 << 20}
	g.Env = append(g.Env, env...)
	cfg := launcher.Config{Dir: filepath.Join(dir, "d"), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "").checkLine("ready")
	awaitInFile(t, statefile.Path(cfg.Dir), `"ready":`) // a process that ends before it is in the state file is not adopted
	first.kill()
	pids := b.alive()
	testkit.Equal(t, "processes", len(pids), 1)
	if err := syscall.Kill(pids[0], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, pids[0], tooLong)

	cfg.Groups[0].Restart.Policy = launcher.Never
	h := launchWith(t, cfg)
	testkit.Equal(t, "outcome", h.waitForEnd("web-1").Outcome, launcher.Unknown)
	h.close()
	text, err := os.ReadFile(g.Log.Path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// While no launcher runs, a process that prints more than a pipe holds neither blocks nor dies, and
// no output is lost.
func TestLauncherDeath_OutputIsReadWhileNoLauncherRuns(t *testing.T) {
	text := printedUnseen(t)
	testkit.Equal(t, "lines", bytes.Count(text, []byte("web-1 out | xxx")), 5000)
	testkit.Equal(t, "last lines", bytes.Count(text, []byte("web-1 out | all of it")), 1)
}

// While no launcher runs, the guardian masks the secrets that its launcher knew. The next launcher
// masks those of the processes that it adopts. The state file does not contain these secrets.
func TestLauncherDeath_OutputIsMaskedWhileNoLauncherRuns(t *testing.T) {
	text := printedUnseen(t, "TOKEN="+strings.Repeat("x", 90))
	testkit.Equal(t, "lines", bytes.Count(text, []byte("web-1 out | ***xxxxxxxxx\n")), 0)
	testkit.Equal(t, "masked lines", bytes.Count(text, []byte("web-1 out | ***\n")), 5000)
	testkit.Equal(t, "last lines", bytes.Count(text, []byte("web-1 out | all of it")), 1)
}

// The next launcher has another secret in its configuration, and takes the old one from the
// environment of the process that it adopts.
func TestLauncherDeath_SecretsOfAdoptedProcessAreMasked(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(group("web", 1, "burst", "--process-id", "{id}", "--work-duration", "1ms", "--behavior", "hang")))
	env := g.Env
	g.Env = append(env[:len(env):len(env)], "TOKEN="+strings.Repeat("x", 90))
	g.Restart.Policy = launcher.Never
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "").checkLine("ready")
	awaitInFile(t, statefile.Path(cfg.Dir), `"ready":`)
	first.kill()
	state, err := os.ReadFile(statefile.Path(cfg.Dir))
	if err != nil || bytes.Contains(state, []byte("xxxxxxxxx")) {
		t.Errorf("the state file has the secret, or cannot be read: %v", err)
	}
	cfg.Groups = []launcher.GroupConfig{g}
	cfg.Groups[0].Env = env
	cfg.Groups[0].Desired, cfg.Groups[0].MinHealthy = 0, nil
	cfg.Groups[0].Shutdown = launcher.ShutdownConfig{Grace: time.Hour, Max: time.Hour} // Desired is 0, so the process is stopped; it hangs for the rest of the test
	h := launchWith(t, cfg)
	h.readUntil("the process is adopted", func(e launcher.Event) bool { return e.Kind == launcher.Adopted })
	_, more, stop, err := h.Printed("web-1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	pids := b.alive()
	testkit.Equal(t, "processes", len(pids), 1)
	if err := syscall.Kill(pids[0], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-more:
		testkit.Equal(t, "first line", line.Text, "***")
	case <-soon(t).Done():
		t.Fatal("the process prints nothing")
	}
	h.waitForEnd("web-1")
}

// The last output of a process that has ended is not lost if the guardian ends without having read
// it.
func TestLauncherDeath_LastOutputOfEndedProcessIsNotLost(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(group("web", 1, "last words")))
	g.Protocol, g.Restart.Policy = launcher.Signals, launcher.Never
	dir := shortDir(t)
	g.Log.Path = filepath.Join(dir, "log")
	cfg := launcher.Config{Dir: filepath.Join(dir, "d"), Groups: []launcher.GroupConfig{g}}
	dozing := filepath.Join(dir, "dozing")
	cfg.Guardian = []string{"env", asRole + "=dozing guardian", os.Args[0], cfg.Dir, dozing}
	first := startAnother(t, cfg, "").checkLine("ready")
	awaitInFile(t, statefile.Path(cfg.Dir), `"ready":`)
	awaitInFile(t, g.Log.Path, "listening")
	first.kill()
	awaitInFile(t, dozing, "dozing")
	for _, pid := range b.alive() {
		if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, pid, tooLong)
	}

	cfg.Guardian = guardianCommand
	h := launchWith(t, cfg)
	testkit.Equal(t, "outcome", h.waitForEnd("web-1").Outcome, launcher.Unknown)
	h.close()
	text, err := os.ReadFile(g.Log.Path)
	if err != nil || !bytes.Contains(text, []byte("web-1 out | last words\n")) || !bytes.Contains(text, []byte("web-1 err | last complaint\n")) {
		t.Errorf("log is %s, %v", text, err)
	}
}

// A launcher that is stopped before it has adopted processes leaves them to the next one and keeps
// no file open.
func TestLauncherDeath_LauncherStoppedBeforeAdoptionDoesNotStopProcesses(t *testing.T) {
	cfg, pids := orphans(t, kept(runners("web", 1)))
	m, err := launcher.StartStopped(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Completion().Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if path, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(path, cfg.Dir) {
			t.Errorf("%s is open", path)
		}
	}
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "pids after the stop", pidsOf(h, "web"), pids)
}

// If a group is to be kept, a damaged state file is refused and left unchanged, and so is the file
// of another program or version. No process is affected.
func TestStateFile_DamagedFileIsRefusedAndLeftUnchanged(t *testing.T) {
	b := newBrood(t)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("web", 1)))}}
	startAnother(t, cfg, "").checkLine("ready").kill()
	path := statefile.Path(cfg.Dir)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := b.alive()
	for _, c := range []struct {
		name, says, todo string
		text             []byte
	}{
		{"empty", "not valid JSON", "run launcher recover", nil},
		{"truncated", "not valid JSON", "run launcher recover", good[:len(good)/2]},
		{"foreign", `unsupported format ""`, "move it away", []byte(`{"name": "something"}`)},
		{"of a later version", "version 3", "use the launcher that wrote it", bytes.Replace(good, []byte(`"version":2`), []byte(`"version":3`), 1)},
		{"changed", "checksum mismatch", "run launcher recover", bytes.Replace(good, []byte(`"pid":`), []byte(`"pid":1`), 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, c.text, 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := launcher.Start(context.Background(), cfg)
			if err == nil {
				m.Force(errors.New("the test is over")).Wait(soon(t))
				t.Fatal("the launcher was started")
			}
			var bad *launcher.StateError
			if !errors.As(err, &bad) || bad.Path != path || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.todo) {
				t.Errorf("got %v", err)
			}
			text, _ := os.ReadFile(path)
			if !bytes.Equal(text, c.text) {
				t.Errorf("the state file was changed to %q", text)
			}
		})
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "pids after the refusals", pidsOf(h, "web"), before)
}

// A failed start leaves kept processes to the next launcher.
func TestLauncherDeath_ProcessesSurviveIfNextLauncherFails(t *testing.T) {
	b := newBrood(t)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("web", 1)))}}
	startAnother(t, cfg, "").checkLine("ready").kill()
	before := b.alive()
	for _, bad := range []func(c *launcher.Config){
		func(c *launcher.Config) { c.Guardian = []string{"true"} },
		func(c *launcher.Config) { c.Guardian = []string{"/no/such/guardian"} },
		func(c *launcher.Config) {
			c.Groups = append(c.Groups, runners("other", 1))
			c.Groups[1].Listen = []launcher.Listen{{Network: "unix", Address: "/no/such/socket"}}
		},
		func(c *launcher.Config) { c.Guardian = nil },
	} {
		c := cfg
		c.Groups = slices.Clone(cfg.Groups)
		bad(&c)
		m, err := launcher.Start(context.Background(), c)
		var rule *launcher.ConfigError
		if !errors.As(err, &rule) {
			t.Errorf("got %v", err)
		}
		if err == nil {
			m.Force(errors.New("the test is over")).Wait(soon(t))
		}
	}
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "pids", pidsOf(h, "web"), before)
}

// If a guardian is killed, an alarm says so, and another guardian takes its place.
func TestGuardianProcess_IsReplacedWhenKilled(t *testing.T) {
	b := newBrood(t)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{b.of(runners("web", 1))}}
	h := launchWith(t, cfg).ready()
	first := guardians(t, os.Getpid())
	testkit.Equal(t, "guardians", len(first), 1)
	kill(t, first[0])
	h.readUntil("an alarm", func(e launcher.Event) bool {
		return e.Kind == launcher.Alarm && strings.Contains(e.Message, "guardian")
	})
	awaitAnotherGuardian(t, first[0])
	h.close()
	testkit.Equal(t, "guardians at the end", len(guardians(t, os.Getpid())), 0)
}

// awaitAnotherGuardian waits for the guardian that replaces one that has ended.
func awaitAnotherGuardian(t *testing.T, pid int) {
	t.Helper()
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) {
		if now := guardians(t, os.Getpid()); len(now) == 1 && now[0] != pid {
			return
		} else if time.Now().After(late) {
			t.Fatal("no other guardian was started")
		}
	}
}

// guardians returns the pids of the guardians whose parent process is the given one.
func guardians(t *testing.T, parent int) (pids []int) {
	t.Helper()
	for _, pid := range children(t, parent) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.HasSuffix(text, []byte("\x00guardian\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}
