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
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/testrunner"
	"golang.org/x/sys/unix"
)

func init() {
	// A launcher of the configuration that it is given. It says "ready" when its groups are, does one more thing, and goes on.
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
			m.Restart(context.Background(), cfg.Groups[0].Name, "the test says so")
		case "stop":
			for _, p := range m.Health()[0].Processes {
				m.StopProcess(p.ID, launcher.Stop{Reason: "the test says so"})
			}
			fmt.Println("told")
		case "kill one":
			syscall.Kill(m.Health()[0].Processes[0].PID, syscall.SIGKILL)
		case "one fewer, and kill one":
			all := m.Health()[0].Processes
			m.StopProcess(all[0].ID, launcher.Stop{NoReplacement: true})
			for !slices.ContainsFunc(m.Health()[0].Processes, func(st launcher.Status) bool { return st.ID == all[0].ID && st.State.Ended() }) {
				time.Sleep(time.Millisecond)
			}
			syscall.Kill(all[1].PID, syscall.SIGKILL)
		case "one fewer":
			m.StopProcess(m.Health()[0].Processes[0].ID, launcher.Stop{NoReplacement: true})
		case "address":
			for _, addr := range m.Addrs(cfg.Groups[0].Name) {
				fmt.Println(addr)
			}
		}
		forever()
	}
	// A guardian. Once a file is there, one that ends its launcher in the moment in which it guards, before it says so.
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
		launcher.Guard(nil)
	}
	// A guardian that does not hold listeners for long.
	roles["brief guardian"] = func([]string) {
		launcher.HoldFor(time.Millisecond)
		launcher.Guard(nil)
	}
	// A guardian that waits for the lock for ever.
	roles["patient guardian"] = func([]string) {
		launcher.WaitForLock(time.Hour)
		launcher.Guard(nil)
	}
	// A guardian that reads nothing of what processes print, and only has it open once it says so in a file.
	roles["dozing guardian"] = func(args []string) {
		in := bufio.NewReader(os.Stdin)
		in.ReadString('\n')
		fmt.Println("guarding")
		io.Copy(io.Discard, in) // to the launcher's end
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
	// What prints something when it gets SIGUSR1, and ends.
	roles["last words"] = func([]string) {
		usr1 := make(chan os.Signal, 1)
		signal.Notify(usr1, syscall.SIGUSR1)
		fmt.Println("listening")
		<-usr1
		fmt.Println("last words")
		fmt.Fprintln(os.Stderr, "last complaint")
		os.Exit(3)
	}
	// What starts fifty others, each by two forks, in a session of its own and deaf to SIGTERM, and then is a test runner. Each
	// has said that it is there: until then it could be in an exec, and have no environment that a test would know it by.
	roles["clan"] = func(args []string) {
		said, says, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		never, open, err := os.Pipe() // nobody writes, and who reads has it open
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
	// What prints more than a pipe holds when it gets SIGUSR1, and ends.
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

// another is a launcher that is a process of its own.
type another struct {
	*exec.Cmd
	t    *testing.T
	says *bufio.Scanner
}

// startAnother starts one, which does one more thing than to run.
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
	a.says = bufio.NewScanner(out)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.kill)
	return a
}

// hears waits until it says so, if it has not.
func (a *another) hears(want string) *another {
	a.t.Helper()
	if a.says.Text() == want {
		return a
	}
	if !a.says.Scan() || a.says.Text() != want {
		a.t.Fatalf("the launcher says %q, and not %q", a.says.Text(), want)
	}
	return a
}

// line returns what it says next.
func (a *another) line() string {
	a.t.Helper()
	if !a.says.Scan() {
		a.t.Fatalf("the launcher says no more than %q: %v", a.says.Text(), a.says.Err())
	}
	return a.says.Text()
}

func (a *another) kill() {
	a.Process.Kill()
	a.Wait()
}

// killSoon kills it at a point of its life, any will do.
func (a *another) killSoon(most time.Duration) {
	time.Sleep(mathrand.N(most))
	a.kill()
}

// A brood is what a test has started, and all that came of it: it carries a token in its environment.
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

// alive lists it, in order. Zombies have no environment.
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

// gone waits until nobody of it is left.
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
			t.Fatalf("%d processes live on", len(pids))
		}
	}
}

// awaitEnd waits for the end of a process that is not ours to wait for.
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

// of has a group belong to the brood.
func (b brood) of(g launcher.GroupConfig) launcher.GroupConfig {
	g.Env = append(g.Env, string(b))
	return g
}

// kept has a group outlive its launcher.
func kept(g launcher.GroupConfig) launcher.GroupConfig {
	g.OnLauncherDeath = launcher.Keep
	return g
}

func clan(name string) launcher.GroupConfig {
	return group(name, 1, "clan", "--process-id", "{id}", "--work-duration", "1ms")
}

// A launcher that is killed leaves nobody: not a child, and not those that it has started, by two forks and in sessions of
// their own, and that ignore SIGTERM. That is the guardian's doing, and without one the next launcher's.
func TestKilledLauncherLeavesNobody(t *testing.T) {
	for _, guardian := range [][]string{guardianCommand, nil} {
		name := "the guardian"
		if guardian == nil {
			name = "the next launcher"
		}
		t.Run(name, func(t *testing.T) {
			b := newBrood(t)
			cfg := launcher.Config{Dir: shortDir(t), Guardian: guardian, Groups: []launcher.GroupConfig{b.of(clan("clan"))}}
			first := startAnother(t, cfg, "").hears("ready")
			equal(t, "processes", len(b.alive()), 51)
			pids := guardians(t, first.Process.Pid)
			first.kill()
			for _, pid := range pids { // then it has done its work
				awaitEnd(t, pid, tooLong)
				equal(t, "processes without a launcher", len(b.alive()), 0)
			}
			cfg.Groups = []launcher.GroupConfig{runners("web", 1)}
			launchWith(t, cfg).ready()
			if pids := b.alive(); len(pids) > 0 {
				t.Errorf("%d processes live on", len(pids))
			}
		})
	}
}

// Nor does it leave sockets that nobody answers at, and a state file: its guardian clears them away, if nobody is to be kept.
func TestKilledLauncherLeavesNoFiles(t *testing.T) {
	b := newBrood(t)
	dir := shortDir(t)
	app := filepath.Join(shortDir(t), "app")
	web := b.of(runners("web", 2))
	web.Listen = []launcher.Listen{{Name: "app", Network: "unix", Address: app}}
	cfg := launcher.Config{Dir: dir, Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	first := startAnother(t, cfg, "").hears("ready")
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
	equal(t, "files", left, []string(nil))
	b.gone(t)
	launchWith(t, cfg).ready()
}

// Wherever a launcher is in its life when it is killed, nothing half-started stays, twenty times in a row.
func TestKilledAnywhere_Kill(t *testing.T) {
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
		t.Errorf("not those that the launcher knows (-known +alive):\n%s", diff)
	}
	h.close()
	equal(t, "cgroups that stay", in.holds(), []string(nil))
}

// pidsOf returns the pids of the processes of a group, in order.
func pidsOf(h *harness, group string) (pids []int) {
	h.t.Helper()
	for _, st := range h.running(group) {
		pids = append(pids, st.PID)
	}
	slices.Sort(pids)
	return pids
}

// The next launcher adopts each process that was kept, and none twice. It knows what the last one knew, but for secrets, and
// the end of such a process is one that nobody can know.
func TestKept(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 2)))
	g.Env = append(g.Env, "PASSWORD=hunter2")
	g.Command = append(g.Command, "--http", "")
	g.PreStop = []launcher.Hook{{Command: []string{"echo", "swordfish"}}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "").hears("ready")
	before := b.alive()
	equal(t, "processes", len(before), 2)
	first.kill()

	text, err := os.ReadFile(launcher.StateIn(cfg.Dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "PASSWORD", "swordfish", "--http"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the state file tells %q", secret)
		}
	}
	if info, err := os.Stat(launcher.StateIn(cfg.Dir)); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	h := launchWith(t, cfg).ready()
	equal(t, "pids", pidsOf(h, "web"), before)
	if diff := cmp.Diff(before, b.alive()); diff != "" {
		t.Errorf("processes (-before +after):\n%s", diff)
	}
	for _, st := range h.running("web") {
		if st.State != launcher.Ready || time.Since(st.Started) > time.Hour || st.ReadyAt.Before(st.Started.Add(-time.Second)) || st.Revision != 1 {
			t.Errorf("%+v", st)
		}
	}
	if err := h.StopProcess("web-1", launcher.Stop{Reason: "the test says so"}); err != nil {
		t.Fatal(err)
	}
	st := h.ends("web-1")
	equal(t, "state", st.State, launcher.Gone)
	equal(t, "outcome", st.Outcome, launcher.Unknown)
	equal(t, "exit", st.Exit, "ended, and nobody can know how")
	h.ready()
	if now := h.running("web"); len(now) != 2 || now[1].ID != "web-3" { // the numbers go on
		t.Errorf("%+v", now)
	}
	equal(t, "outcome of one that was not adopted", h.stops("web-3").Outcome, launcher.Clean)
	h.close()
	names, _ := filepath.Glob(filepath.Join(cfg.Dir, "*"))
	equal(t, "files in the end", names, []string(nil))
	b.gone(t)
}

// Clients do not notice that a launcher is killed and comes back, at any point of its life, twenty times in a row.
func TestKilledAnywhere_Keep(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 2)))
	g.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	in := enclose(t)
	last := in.startAnother(t, cfg, "").hears("ready")
	load := startTraffic(t, g.Listen[0].Address)
	for i := range 20 {
		if i%4 == 0 {
			last.hears("ready")
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
		t.Errorf("not those that the launcher knows (-known +alive):\n%s", diff)
	}
	h.close()
	equal(t, "cgroups that stay", in.holds(), []string(nil))
}

// settled waits until a group has as many processes as are desired, all of them as they should be, and no others.
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
		h.until(fmt.Sprintf("%s has %d processes, and no others", group, n), settled)
	}
}

// Traffic is clients that send one request after the other, each over a connection of its own.
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
				time.Sleep(time.Millisecond) // four clients are not to keep two cores busy
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

// When all processes of a group are gone, and the launcher, too, clients wait for the next one, and are not refused.
func TestGuardianHoldsListeners(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1)))
	g.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	startAnother(t, cfg, "").hears("ready").kill()
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
		t.Errorf("the answer is %q, %v\n%s", line, err, h.story())
	}
}

// It does not hold them for ever: where no launcher comes, it leaves, and clients are refused.
func TestGuardianLeaves(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1)))
	g.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{g}}
	cfg.Guardian = briefGuardian
	first := startAnother(t, cfg, "").hears("ready")
	pids := guardians(t, first.Process.Pid)
	equal(t, "guardians", len(pids), 1)
	first.kill()
	for _, pid := range b.alive() {
		kill(t, pid)
	}
	awaitEnd(t, pids[0], tooLong)
	if conn, err := net.Dial("tcp", g.Listen[0].Address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialing when the guardian has left: %v, want that it is refused", err)
		if err == nil {
			conn.Close()
		}
	}
	launchWith(t, cfg).ready() // has nothing to take over
}

// A guardian that is told to leave waits for no lock: the launcher that tells it has that, and waits for it.
func TestGuardian_LeavesTheLockToTheNext(t *testing.T) {
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianOf("patient guardian"), Groups: []launcher.GroupConfig{newBrood(t).of(runners("web", 1))}}
	first := startAnother(t, cfg, "").hears("ready")
	guardian := guardians(t, first.Process.Pid)[0]
	dir, err := os.Open(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	locked := make(chan error)
	go func() { locked <- unix.Flock(int(dir.Fd()), unix.LOCK_EX) }() // as soon as the launcher is gone
	first.kill()
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(guardian, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	for late := time.Now().Add(tooLong); ; {
		unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0) // again: it may not have been listening yet
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10); n > 0 {
			return
		}
		if time.Now().After(late) {
			t.Fatal("the guardian waits for the lock")
		}
	}
}

// A guardian whose launcher dies before it knows that it has one is in charge nevertheless, and the next launcher finds it.
func TestGuardianIsInCharge_BeforeItsLauncherKnows(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1)))
	g.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	dir := shortDir(t)
	betray := filepath.Join(dir, "betray")
	cfg := launcher.Config{Dir: filepath.Join(dir, "l"), Groups: []launcher.GroupConfig{g},
		Guardian: []string{"/usr/bin/env", asRole + "=traitor", os.Args[0], betray, "guardian"}}
	last := startAnother(t, cfg, "").hears("ready")
	if err := os.WriteFile(betray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := guardians(t, last.Process.Pid)
	equal(t, "guardians", len(first), 1)
	kill(t, first[0])
	last.Wait()
	for _, pid := range b.alive() {
		kill(t, pid)
		awaitEnd(t, pid, tooLong)
	}
	left := commands(t, betray)
	if len(left) != 1 {
		t.Fatalf("there are %d guardians without a launcher", len(left))
	}
	conn, err := net.Dial("tcp", g.Listen[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\n\r\n")
	cfg.Guardian = guardianCommand
	h := launchWith(t, cfg).ready()
	equal(t, "guardians of the last launcher", commands(t, betray), []int(nil))
	conn.SetReadDeadline(time.Now().Add(tooLong))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || line != "HTTP/1.0 200 OK\r\n" {
		t.Errorf("the answer is %q, %v\n%s", line, err, h.story())
	}
}

// Nor does anything stay of a launcher that is killed in that moment and keeps nobody.
func TestGuardianCleansUp_BeforeItsLauncherKnows(t *testing.T) {
	b := newBrood(t)
	dir := shortDir(t)
	betray := filepath.Join(dir, "betray")
	cfg := launcher.Config{Dir: filepath.Join(dir, "l"), Groups: []launcher.GroupConfig{b.of(runners("web", 1))},
		Guardian: []string{"/usr/bin/env", asRole + "=traitor", os.Args[0], betray, "guardian"}}
	last := startAnother(t, cfg, "").hears("ready")
	if err := os.WriteFile(betray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, guardians(t, last.Process.Pid)[0])
	last.Wait()
	for _, pid := range commands(t, betray) {
		awaitEnd(t, pid, tooLong)
	}
	left, _ := filepath.Glob(filepath.Join(cfg.Dir, "*"))
	equal(t, "files", left, []string(nil))
	b.gone(t)
}

// commands lists the processes with an argument.
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

// A process that was being stopped goes on being stopped, and for the same reason, even if it does not react at all.
func TestKept_StopGoesOn(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1, "--behavior", "hang")))
	g.Shutdown.Grace, g.Shutdown.Max = 15*time.Second, 15*time.Second
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "stop").hears("ready").hears("told")
	awaitInFile(t, launcher.StateIn(cfg.Dir), `"asked":`)
	first.kill()
	if err := syscall.Kill(b.alive()[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The new limits are those of a process that is as it should be.
	cfg.Groups[0].Shutdown.Grace, cfg.Groups[0].Shutdown.SIGTERMTimeout = 100*time.Millisecond, 100*time.Millisecond
	h := launchWith(t, cfg)
	next := h.until("web-1 changes", func(e launcher.Event) bool { return e.Process == "web-1" && e.Kind == launcher.Transition })
	if next.To != launcher.ShutdownRequested {
		t.Fatalf("it is %v", next.To)
	}
	st := h.ends("web-1")
	equal(t, "outcome", st.Outcome, launcher.Unknown)
	equal(t, "reason", st.Reason, "the test says so")
	equal(t, "survivors", len(st.Survivors), 0)
	if len(b.alive()) > 1 { // its replacement
		t.Errorf("alive: %v", b.alive())
	}
}

// The times of a process that was asked to stop go on under the next launcher, and that says how long it has really had.
func TestKept_StopTakesNoLonger(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1, "--behavior", "hang")))
	g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "stop").hears("ready").hears("told")
	awaitInFile(t, launcher.StateIn(cfg.Dir), `"began":`)
	asked := time.Now() // or before
	first.kill()
	// The new grace period is long over, but for the one time that it can ask for more.
	shutdown := &cfg.Groups[0].Shutdown
	shutdown.Grace, shutdown.Poll, shutdown.SIGTERMTimeout = time.Millisecond, 2*time.Second, time.Millisecond
	h := launchWith(t, cfg)
	adopted := h.until("it is adopted", func(e launcher.Event) bool { return e.Kind == launcher.Adopted })
	e := h.until("its end", func(e launcher.Event) bool { return e.Kind == launcher.Signalled })
	took, ok := strings.CutPrefix(e.Message, "SIGTERM to all: its grace period is over, after ")
	took, _, _ = strings.Cut(took, ";")
	d, err := time.ParseDuration(took)
	if least := adopted.Time.Sub(asked); !ok || err != nil || d < least.Truncate(time.Millisecond) {
		t.Errorf("%q, and it was asked %v before it was adopted, or more (%v)", e.Message, least, err)
	}
	h.ends("web-1")
}

// An order to have one fewer holds under the next launcher, which takes processes of the group over, and counts once for a process
// that is still stopping; unless the configuration says by now how many there shall be.
func TestKept_OneFewer(t *testing.T) {
	for _, c := range []struct{ loaded, desired int }{{2, 1}, {3, 3}} {
		t.Run(fmt.Sprintf("%d loaded", c.loaded), func(t *testing.T) {
			b := newBrood(t)
			g := kept(b.of(runners("web", 2, "--behavior", "hang")))
			g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
			cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}
			first := startAnother(t, cfg, "one fewer").hears("ready")
			awaitInFile(t, launcher.StateIn(cfg.Dir), `"asked":`)
			first.kill()
			cfg.Groups[0].Desired = c.loaded
			h := launchWith(t, cfg)
			stops := h.until("one goes on stopping", func(e launcher.Event) bool { return e.To == launcher.ShutdownRequested }).Process
			for _, when := range []string{"then", "after the same order"} {
				health, _ := h.GroupHealth("web")
				equal(t, "desired "+when, health.Desired, c.desired)
				if err := h.StopProcess(stops, launcher.Stop{NoReplacement: true}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A job that is done is not done again by the next launcher, whether it takes others of the group over or nobody is left. It is, if the
// configuration says by now that it is another one, or was not to be kept.
func TestKept_JobsThatAreThrough(t *testing.T) {
	const policy = "; by the restart policy, never, nobody follows before an order"
	done := kept(group("job", 2, "exit", "0"))
	other := done
	other.Env = append(slices.Clone(done.Env), "OTHER=1")
	more := done
	more.Desired = 3
	for name, c := range map[string]struct {
		was, is launcher.GroupConfig
		todo    string
		next    string // whom the next launcher starts, if anybody
		message string // of that, if nobody
	}{
		"all":                  {done, done, "nothing", "", "completed: all 2 have ended" + policy},
		"one of two":           {kept(runners("job", 2)), kept(runners("job", 2)), "kill one", "", "1 of 2 have ended for good, 1 of them with a failure" + policy},
		"one, by order":        {kept(runners("job", 2)), kept(runners("job", 2)), "one fewer, and kill one", "", "completed: all 1 have ended, 1 of them with a failure" + policy + "; 1 fewer than desired_instances, 2, by order"},
		"of another command":   {done, other, "nothing", "job-3", ""},
		"more of them":         {done, more, "nothing", "job-3", ""},
		"not kept, all of two": {group("job", 2, "exit", "0"), done, "nothing", "job-1", ""},
		"before a boot":        {done, done, "nothing", "job-3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.was.Restart.Policy, c.is.Restart.Policy = launcher.Never, launcher.Never
			cfg := launcher.Config{Dir: shortDir(t), Guardian: briefGuardian, Groups: []launcher.GroupConfig{c.was}}
			first := startAnother(t, cfg, c.todo).hears("ready")
			awaitInFile(t, launcher.StateIn(cfg.Dir), map[bool]string{true: `"through":2`, false: `"through":1`}[c.todo == "nothing"])
			guardian := guardians(t, first.Process.Pid)[0]
			first.kill()
			if c.todo != "kill one" { // with nobody left, it leaves
				awaitEnd(t, guardian, tooLong)
			}
			if name == "before a boot" {
				bootAnew(t, launcher.StateIn(cfg.Dir))
			}
			cfg.Groups = []launcher.GroupConfig{c.is}
			h := launchWith(t, cfg)
			if c.next != "" {
				h.ends(c.next)
				return
			}
			h.ready()
			health, _ := h.GroupHealth("job")
			equal(t, "what is said", health.Message, c.message)
			equal(t, "processes", len(health.Processes), health.Desired)
		})
	}
}

// An unhealthy job counts as through before it has ended. The next launcher counts it itself where it was not asked to stop yet.
func TestKept_UnhealthyJobCountsOnce(t *testing.T) {
	h := launch(t, runners("other", 0)).ready()
	for asked, want := range map[bool]int{false: 0, true: 1} {
		equal(t, fmt.Sprintf("through, asked to stop: %v", asked), launcher.ThroughAndRecalled(h.Manager, kept(runners("job", 2)), asked), want)
	}
}

// bootAnew has the state file be that of another boot.
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

// awaitInFile waits until a file says something, and returns all of it. Its writers rename it, and nobody tells when.
func awaitInFile(t *testing.T, path, want string) string {
	t.Helper()
	for late := time.Now().Add(tooLong); ; {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text), want) {
			return string(text)
		}
		if time.Now().After(late) {
			t.Fatalf("%s does not say %s: %s", path, want, text)
		}
		time.Sleep(time.Millisecond)
	}
}

// What the configuration does not have any more is replaced, or stopped.
func TestKept_OfAnotherConfiguration(t *testing.T) {
	b := newBrood(t)
	web, old := kept(b.of(runners("web", 1))), kept(b.of(runners("old", 1)))
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web, old}}
	startAnother(t, cfg, "").hears("ready").kill()

	web.Env = append(web.Env, "NEW=1")
	cfg.Groups = []launcher.GroupConfig{web}
	h := launchWith(t, cfg)
	equal(t, "outcome of the old group", h.ends("old-1").Outcome, launcher.Unknown)
	equal(t, "outcome of the old revision", h.ends("web-1").Outcome, launcher.Unknown)
	h.ready()
	running := h.running("web")
	if len(running) != 1 || running[0].ID != "web-2" || running[0].Revision != 2 {
		t.Errorf("%+v", running)
	}
	equal(t, "processes of the old group", len(h.running("old")), 0)
}

// printedUnseen has a process print more than a pipe holds, and end, while there is no launcher, and returns its log after the
// next one.
func printedUnseen(t *testing.T, guardian []string) []byte {
	t.Helper()
	b := newBrood(t)
	g := kept(b.of(group("web", 1, "burst", "--process-id", "{id}", "--work-duration", "1ms")))
	dir := shortDir(t)
	g.Log = launcher.LogConfig{Path: filepath.Join(dir, "log"), Buffer: 4 << 20}
	cfg := launcher.Config{Dir: filepath.Join(dir, "d"), Guardian: guardian, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "").hears("ready")
	awaitInFile(t, launcher.StateIn(cfg.Dir), `"ready":`) // a process that ends before it is written down is forgotten
	first.kill()
	pids := b.alive()
	equal(t, "processes", len(pids), 1)
	if err := syscall.Kill(pids[0], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, pids[0], tooLong)

	cfg.Groups[0].Restart.Policy = launcher.Never
	h := launchWith(t, cfg)
	equal(t, "outcome", h.ends("web-1").Outcome, launcher.Unknown)
	h.close()
	text, err := os.ReadFile(g.Log.Path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// While there is no launcher, a process that prints more than a pipe holds neither waits nor dies, and nothing is lost.
func TestKept_PrintsWithoutLauncher(t *testing.T) {
	text := printedUnseen(t, guardianCommand)
	equal(t, "lines", bytes.Count(text, []byte("web-1 out | xxx")), 5000)
	equal(t, "last lines", bytes.Count(text, []byte("web-1 out | all of it")), 1)
}

// What a process has printed last is not lost where it has ended, and the guardian leaves without having read it.
func TestKept_LastWords(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(group("web", 1, "last words")))
	g.Protocol, g.Restart.Policy = launcher.Signals, launcher.Never
	dir := shortDir(t)
	g.Log.Path = filepath.Join(dir, "log")
	cfg := launcher.Config{Dir: filepath.Join(dir, "d"), Groups: []launcher.GroupConfig{g}}
	dozing := filepath.Join(dir, "dozing")
	cfg.Guardian = []string{"env", asRole + "=dozing guardian", os.Args[0], cfg.Dir, dozing}
	first := startAnother(t, cfg, "").hears("ready")
	awaitInFile(t, launcher.StateIn(cfg.Dir), `"ready":`)
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
	equal(t, "outcome", h.ends("web-1").Outcome, launcher.Unknown)
	h.close()
	text, err := os.ReadFile(g.Log.Path)
	if err != nil || !bytes.Contains(text, []byte("web-1 out | last words\n")) || !bytes.Contains(text, []byte("web-1 err | last complaint\n")) {
		t.Errorf("the log: %s, %v", text, err)
	}
}

// A launcher that is told to stop before it has taken over anybody leaves who was kept to the next one, and has nothing open.
func TestKept_NotTakenOver(t *testing.T) {
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
	equal(t, "pids after that", pidsOf(h, "web"), pids)
}

// A state file that is not what it was, or not ours, is refused, left as it is, and nothing is touched.
func TestBadStateFiles(t *testing.T) {
	b := newBrood(t)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("web", 1)))}}
	startAnother(t, cfg, "").hears("ready").kill()
	path := launcher.StateIn(cfg.Dir)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := b.alive()
	for _, c := range []struct {
		name, says string
		text       []byte
	}{
		{"empty", "no whole JSON", nil},
		{"truncated", "no whole JSON", good[:len(good)/2]},
		{"foreign", "somebody else's", []byte(`{"name": "something"}`)},
		{"of a later version", "version 2", bytes.Replace(good, []byte(`"version":1`), []byte(`"version":2`), 1)},
		{"changed", "has been changed", bytes.Replace(good, []byte(`"pid":`), []byte(`"pid":1`), 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, c.text, 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := launcher.Start(context.Background(), cfg)
			if err == nil {
				m.Force(errors.New("the test is over")).Wait(soon(t))
				t.Fatal("it was started")
			}
			var bad *launcher.StateError
			if !errors.As(err, &bad) || bad.Path != path || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "move it away") {
				t.Errorf("got %v", err)
			}
			text, _ := os.ReadFile(path)
			if !bytes.Equal(text, c.text) {
				t.Errorf("it is %q now", text)
			}
		})
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	h := launchWith(t, cfg).ready()
	equal(t, "pids after all that", pidsOf(h, "web"), before)
}

// A start that fails leaves those who were kept to the next one that does not.
func TestKept_OverAFailedStart(t *testing.T) {
	b := newBrood(t)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("web", 1)))}}
	startAnother(t, cfg, "").hears("ready").kill()
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
	equal(t, "pids", pidsOf(h, "web"), before)
}

// A guardian that is killed is told of, and another one does what it was to do.
func TestGuardianIsReplaced(t *testing.T) {
	b := newBrood(t)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{b.of(runners("web", 1))}}
	h := launchWith(t, cfg).ready()
	first := guardians(t, os.Getpid())
	equal(t, "guardians", len(first), 1)
	kill(t, first[0])
	h.until("an alarm", func(e launcher.Event) bool {
		return e.Kind == launcher.Alarm && strings.Contains(e.Message, "guardian")
	})
	awaitAnotherGuardian(t, first[0])
	h.close()
	equal(t, "guardians in the end", len(guardians(t, os.Getpid())), 0)
}

// awaitAnotherGuardian waits for the one that takes the place of one that has ended.
func awaitAnotherGuardian(t *testing.T, pid int) {
	t.Helper()
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) {
		if now := guardians(t, os.Getpid()); len(now) == 1 && now[0] != pid {
			return
		} else if time.Now().After(late) {
			t.Fatal("there is no other guardian")
		}
	}
}

// guardians lists the guardians of a program.
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
