package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/mtls/mtlstest"
)

// orphans are processes of a group that a launcher has kept, which is no more.
func orphans(t *testing.T, g launcher.GroupConfig) (cfg launcher.Config, pids []int) {
	t.Helper()
	b := newBrood(t)
	cfg = launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{b.of(g)}}
	startAnother(t, cfg, "").hears("ready").kill()
	pids = b.alive()
	equal(t, "processes without a launcher", len(pids), g.Desired)
	return cfg, pids
}

// Processes that were started with another configuration are rolled, and the roll comes to an end.
func TestKept_IsRolled(t *testing.T) {
	cfg, _ := orphans(t, kept(runners("web", 3)))
	cfg.Groups[0].Env = append(cfg.Groups[0].Env, "NEW=1")
	h := launchWith(t, cfg)
	h.until("the roll is over", func(e launcher.Event) bool {
		if e.Kind == launcher.RollFailed {
			t.Fatalf("it has failed\n%s", h.story())
		}
		return e.Kind == launcher.RollDone
	})
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 3})
	equal(t, "least that were ready", leastReady(h), 3)
	if err := h.Rollback(soon(t), "web", "test"); !errors.Is(err, launcher.ErrNotRolling) {
		t.Errorf("a way back from what is over: %v", err)
	}
}

// One of them that is lost while canaries are waited for is made up for at once, by one of what they are rolled to: what it
// was itself nobody knows any more.
func TestKept_LostInACanary(t *testing.T) {
	cfg, pids := orphans(t, kept(runners("web", 3)))
	g := &cfg.Groups[0]
	g.Env = append(slices.Clone(g.Env), "NEW=1")
	g.Roll = launcher.RollConfig{Canary: 1, CanaryWait: time.Hour}
	h := launchWith(t, cfg)
	h.until("the canary is waited for", step("canary", "1 go first"))
	h.until("an old one has made room", func(e launcher.Event) bool { return e.To == launcher.Gone })
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 2, 2: 1})
	for _, st := range h.running("web") {
		if slices.Contains(pids, st.PID) {
			kill(t, st.PID)
			break
		}
	}
	h.until("somebody takes its place", func(e launcher.Event) bool { return e.To == launcher.Ready })
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 1, 2: 2})
	health, _ := h.GroupHealth("web")
	if r := health.Roll; r == nil || r.Phase != "canary" {
		t.Errorf("the wait is over: %+v", r)
	}
}

// A roll of processes that were kept has no way back: it is paused where it would turn back, refuses to, and goes on by an
// order. What there was runs on.
func TestKept_HasNoWayBack(t *testing.T) {
	cfg, pids := orphans(t, kept(runners("web", 2)))
	fixed := filepath.Join(cfg.Dir, "fixed")
	old := cfg.Groups[0]
	cfg.Groups[0] = kept(script("web", 2, "test -e "+fixed+" || exit 3"))
	cfg.Groups[0].Env = old.Env
	cfg.Groups[0].Roll.OnFailure = launcher.Rollback
	h := launchWith(t, cfg)
	failed := h.until("the roll has failed", func(e launcher.Event) bool { return e.Kind == launcher.RollFailed })
	equal(t, "what has come of it", failed.Roll, "paused")
	running := pidsOf(h, "web")
	for _, pid := range pids {
		if !slices.Contains(running, pid) {
			t.Errorf("pid %d was stopped; there are %v", pid, running)
		}
	}
	if err := h.Rollback(soon(t), "web", "test"); !errors.Is(err, launcher.ErrNoWayBack) {
		t.Errorf("the way back: %v", err)
	}
	health, _ := h.GroupHealth("web")
	if r := health.Roll; r == nil || !r.Paused {
		t.Errorf("after that, the roll is %+v", r)
	}
	if err := os.WriteFile(fixed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Resume(soon(t), "web", "mended"); err != nil {
		t.Fatalf("Resume: %v\n%s", err, h.story())
	}
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 2})
}

// Whoever has ordered a roll before the launcher has come to its own hears of the end of it, which there is one of.
func TestKept_OrderedBefore(t *testing.T) {
	cfg, _ := orphans(t, kept(runners("web", 1)))
	open := filepath.Join(cfg.Dir, "open")
	web := cfg.Groups[0]
	web.Env = append(web.Env, "NEW=1")
	web.DependsOn = []string{"db"}
	web.Roll.ProgressDeadline = 3 * time.Second // of which none passes before the group begins
	db := script("db", 1, "until test -e "+open+"; do sleep 0.01; done; sleep 3.1")
	cfg.Groups = []launcher.GroupConfig{web, db}
	h := launchWith(t, cfg)
	over := make(chan error, 1)
	go func() { over <- h.Restart(context.Background(), "web", "test") }()
	h.until("a roll has begun", func(e launcher.Event) bool { return e.Kind == launcher.RollBegun })
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := comes(t, h, over); err != nil {
		t.Errorf("%v\n%s", err, h.story())
	}
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{3: 1})
}

// One of them that was through before its group began is no canary of the roll that comes then.
func TestKept_ThroughBeforeACanary(t *testing.T) {
	jobs := kept(runners("job", 3))
	jobs.Restart.Policy = launcher.Never
	cfg, pids := orphans(t, jobs)
	open := filepath.Join(cfg.Dir, "open")
	job := cfg.Groups[0]
	job.Env = append(slices.Clone(job.Env), "NEW=1")
	job.DependsOn = []string{"db"}
	job.Roll = launcher.RollConfig{Canary: 1, CanaryWait: time.Hour}
	cfg.Groups = []launcher.GroupConfig{job, script("db", 1, "until test -e "+open+"; do sleep 0.01; done")}
	h := launchWith(t, cfg)
	h.allReady("job", 3)
	kill(t, pids[0])
	h.ends(h.until("it is through", func(e launcher.Event) bool { return e.Group == "job" && e.To == launcher.Gone }).Process)
	health, _ := h.GroupHealth("job")
	equal(t, "desired", health.Desired, 2)
	write(t, open)
	equal(t, "what is said of the canaries", goFirst(h), "1 go first")
}

// A group that waits for others, and whose processes from an earlier launcher are through, or have failed, starts them again by an order,
// and at once.
func TestKept_EndedBeforeARestart(t *testing.T) {
	for _, policy := range []launcher.RestartPolicy{launcher.Never, launcher.OnFailure} {
		t.Run(string(policy), func(t *testing.T) {
			jobs := kept(runners("job", 2))
			jobs.Restart = launcher.RestartConfig{Policy: policy, MinBackoff: time.Hour, MaxBackoff: time.Hour}
			cfg, pids := orphans(t, jobs)
			open := filepath.Join(cfg.Dir, "open")
			cfg.Groups[0].DependsOn = []string{"db"}
			db := script("db", 1, "until test -e "+open+"; do sleep 0.01; done")
			db.HealthCheckTimeout = time.Hour
			cfg.Groups = append(cfg.Groups, db)
			h := launchWith(t, cfg)
			h.allReady("job", 2)
			for _, pid := range pids {
				kill(t, pid)
			}
			h.ends("job-1")
			h.ends("job-2")
			launcher.AwaitMemory(h.Manager)
			if err := h.Restart(soon(t), "job", "once more"); err != nil {
				t.Fatal(err)
			}
			awaitInFile(t, launcher.StateIn(cfg.Dir), `"number":2}`) // and not that they are through, should the launcher be killed now
			write(t, open)
			h.allReady("job", 2)
			health, _ := h.GroupHealth("job")
			equal(t, "desired", health.Desired, 2)
		})
	}
}

// A launcher can be killed when it has seen a process end, and before its disk has taken that. The next one is not alarmed, and goes on
// with the roll that the process was a part of: nobody can know whether it was to end. Of a job nobody can know whether it was done, and it
// is not done again.
func TestKept_EndedBeforeItWasWritten(t *testing.T) {
	for _, policy := range []launcher.RestartPolicy{launcher.OnFailure, launcher.Never} {
		t.Run(string(policy), func(t *testing.T) { keptEndedBeforeItWasWritten(t, policy) })
	}
}

func keptEndedBeforeItWasWritten(t *testing.T, policy launcher.RestartPolicy) {
	dir := t.TempDir()
	ready, pids := dir+"/ready-", dir+"/pid-of-"
	b := newBrood(t)
	g := kept(b.of(script("web", 1, "echo $$ >"+pids+"{id}; until test -e "+ready+"{id}; do sleep 0.01; done")))
	g.Restart.Policy = policy
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	write(t, ready+"web-1")
	first := startAnother(t, cfg, "roll").hears("ready")
	pid, err := strconv.Atoi(strings.TrimSpace(awaitInFile(t, pids+"web-2", "\n")))
	if err != nil {
		t.Fatal(err)
	}
	awaitInFile(t, launcher.StateIn(cfg.Dir), fmt.Sprintf(`"pid":%d,`, pid))
	clear := obstruct(t, cfg.Dir)
	kill(t, pid)
	awaitFile(t, filepath.Join(cfg.Dir, "web-2.err"), false)
	first.kill()
	clear()

	h := launchWith(t, cfg)
	equal(t, "outcome", h.ends("web-2").Outcome, launcher.Unknown)
	if policy == launcher.Never {
		if h.count(launcher.RollFailed) == 0 {
			h.until("the roll has failed", func(e launcher.Event) bool { return e.Kind == launcher.RollFailed })
		}
		equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 1})
		return
	}
	write(t, ready+"web-3")
	h.until("the roll is over", func(e launcher.Event) bool { return e.Kind == launcher.RollDone })
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 1})
	equal(t, "rolls that have failed", h.count(launcher.RollFailed), 0)
	equal(t, "alarms", h.count(launcher.Alarm), 0)
}

// awaitFile waits until a file is there, or is not.
func awaitFile(t *testing.T, path string, there bool) {
	t.Helper()
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) {
		_, err := os.Stat(path)
		if there && err == nil || !there && errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// allReady waits until so many processes of a group have become ready.
func (h *harness) allReady(group string, n int) {
	h.t.Helper()
	h.until(fmt.Sprintf("%d of %s are ready", n, group), func(e launcher.Event) bool {
		if e.Group == group && e.To == launcher.Ready {
			n--
		}
		return n == 0
	})
}

// What is known of a process that was found is not lost to the next launcher where this one is killed before it has heard of it.
func TestKept_FoundTwice(t *testing.T) {
	h := launch(t, runners("other", 0)).ready()
	want := launcher.Remembered{Ready: 50 * time.Second, Asked: 40 * time.Second, Began: 30 * time.Second, Granted: -20 * time.Second, Reason: "test", Grace: time.Hour, Port: 1}
	equal(t, "what the next one is to know", launcher.FoundAndRecalled(h.Manager, kept(runners("web", 1)), want), want)
}

// A process that chose a port, and told the last launcher, is known to the next one, and stopped over it.
func TestKept_OverTCP(t *testing.T) {
	files := launcher.TLS(mtlstest.New(t).Issue(t, "web"))
	cfg, pids := orphans(t, kept(overTCP(runners("web", 2), files)))
	h := launchWith(t, cfg).ready()
	equal(t, "pids", pidsOf(h, "web"), pids)
	st := h.stops("web-1")
	equal(t, "state", st.State, launcher.Gone)
	h.close()
	h.drainEvents()
	for _, e := range h.events {
		if e.Kind == launcher.Signalled || e.Kind == launcher.Alarm {
			t.Errorf("%s: %s %s; it should have been asked, and have answered", e.Process, e.Kind, e.Message)
		}
	}
}

// A start that fails takes nothing from those who were kept: their socket can still be reached by its name.
func TestKept_SocketOverAFailedStart(t *testing.T) {
	g := kept(runners("web", 1))
	g.Listen = []launcher.Listen{{Network: "unix", Address: filepath.Join(shortDir(t), "web")}}
	cfg, pids := orphans(t, g)
	bad := cfg
	bad.Guardian = []string{"true"}
	if m, err := launcher.Start(context.Background(), bad); err == nil {
		m.Force(errors.New("the test is over")).Wait(soon(t))
		t.Fatal("it was started")
	}
	get := func() error {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", g.Listen[0].Address)
		}
		return fetch(&http.Client{Timeout: tooLong, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, "http://web")
	}
	if err := get(); err != nil {
		t.Errorf("after a start that has failed: %v", err)
	}
	h := launchWith(t, cfg).ready()
	equal(t, "pids", pidsOf(h, "web"), pids)
	if err := get(); err != nil {
		t.Errorf("with the next launcher: %v", err)
	}
	h.close()
	if _, err := os.Stat(g.Listen[0].Address); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in the end the socket is still there: %v", err)
	}
}

// A start that fails takes nothing from those who wait for the next one either, where nobody is left but the guardian that has them
// wait.
func TestKept_QueueOverAFailedStart(t *testing.T) {
	g := kept(runners("web", 0))
	g.Listen = []launcher.Listen{{Network: "unix", Address: filepath.Join(shortDir(t), "web")}}
	cfg, _ := orphans(t, g)
	conn, err := net.Dial("unix", g.Listen[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	bad := cfg
	bad.Guardian = []string{"true"}
	if m, err := launcher.Start(context.Background(), bad); err == nil {
		m.Force(errors.New("the test is over")).Wait(soon(t))
		t.Fatal("it was started")
	}
	cfg.Groups[0].Desired = 1
	launchWith(t, cfg).ready()
	conn.SetReadDeadline(time.Now().Add(tooLong))
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 200") {
		t.Errorf("who has waited gets %q, %v", answer, err)
	}
}

// What a reload cannot do is refused, and nothing of it is done.
func TestReload_Refuses(t *testing.T) {
	held := kept(runners("held", 1))
	held.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{held, runners("web", 1)}}
	h := launchWith(t, cfg).ready()
	before := append(pidsOf(h, "held"), pidsOf(h, "web")...)
	bare := launch(t, runners("web", 1)).ready()
	files := launcher.TLS(mtlstest.New(t).Issue(t, "launcher"))
	for what, c := range map[string]struct {
		h      *harness
		change func(c *launcher.Config)
		field  string
	}{
		"a group that keeps its listeners": {h, func(c *launcher.Config) {
			added := held
			added.Name = "added"
			c.Groups = append(c.Groups, added)
		}, "OnLauncherDeath"},
		"another end of a group with listeners": {h, func(c *launcher.Config) { c.Groups[0].OnLauncherDeath = launcher.Kill }, "OnLauncherDeath"},
		"no listeners any more":                 {h, func(c *launcher.Config) { c.Groups[0].Listen = nil }, "Listen"},
		"another directory":                     {h, func(c *launcher.Config) { c.Dir += "x" }, "Dir"},
		"an admin service": {h, func(c *launcher.Config) {
			c.Admin = launcher.AdminConfig{Address: "127.0.0.1:0", TLS: files}
		}, "Admin"},
		"a group to keep, without a guardian": {bare, func(c *launcher.Config) {
			c.Dir, c.Groups = bare.dir, []launcher.GroupConfig{runners("web", 1), kept(runners("added", 1))}
		}, "OnLauncherDeath"},
	} {
		next := cfg
		next.Groups = slices.Clone(cfg.Groups)
		c.change(&next)
		err := c.h.Reload(soon(t), next, "test")
		var rule *launcher.ConfigError
		if !errors.As(err, &rule) || rule.Field != c.field {
			t.Errorf("%s: %v; want a refusal that names %s", what, err, c.field)
		}
		if _, err := c.h.GroupHealth("added"); !errors.Is(err, launcher.ErrNotFound) {
			t.Errorf("%s: the group that was to be added: %v", what, err)
		}
	}
	equal(t, "pids", append(pidsOf(h, "held"), pidsOf(h, "web")...), before)
}

// When a group is gone whose listeners a guardian holds, clients are refused, and the guardian can still be replaced.
func TestReload_EndsListenersThatAreHeld(t *testing.T) {
	held := kept(runners("held", 1))
	held.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
	web := runners("web", 1)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{held, web}}
	h := launchWith(t, cfg).ready()
	address := h.Addrs("held")[0].String()
	if err := fetch(&http.Client{Timeout: tooLong}, "http://"+address); err != nil {
		t.Fatal(err)
	}
	cfg.Groups = []launcher.GroupConfig{web}
	if err := h.Reload(soon(t), cfg, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.GroupHealth("held"); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("the group that is gone: %v", err)
	}
	if conn, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connected: %v, %v; nobody is there to answer", conn != nil, err)
	}
	first := guardians(t, os.Getpid())
	equal(t, "guardians", len(first), 1)
	kill(t, first[0])
	awaitAnotherGuardian(t, first[0])
	cfg.Groups = append(cfg.Groups, runners("held", 1)) // who keeps nothing may have the address
	cfg.Groups[1].Listen = []launcher.Listen{{Address: address}}
	if err := h.Reload(soon(t), cfg, "test"); err != nil {
		t.Errorf("the address is not free: %v", err)
	}
}

// One whose certificates the next launcher cannot read is adopted nevertheless: it is rolled, and stopped by
// signals, and not forgotten while it runs.
func TestKept_WithoutItsCertificates(t *testing.T) {
	auth := mtlstest.New(t)
	files := launcher.TLS(auth.Issue(t, "web"))
	g := kept(overTCP(runners("web", 1), files))
	g.Shutdown.Grace = 100 * time.Millisecond
	cfg, pids := orphans(t, g)
	cfg.Groups[0].Transport.TLS = launcher.TLS(auth.Issue(t, "web"))
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	h := launchWith(t, cfg)
	alarm := h.until("somebody is told why", func(e launcher.Event) bool { return e.Kind == launcher.Alarm || e.To.Ended() })
	if alarm.Kind != launcher.Alarm || alarm.Process != "web-1" || !strings.Contains(alarm.Message, files.Cert) {
		t.Fatalf("what is told of %s: %q", alarm.Process, alarm.Message)
	}
	h.enters("web-2", launcher.Ready)
	st := h.ends("web-1")
	equal(t, "its pid", []int{st.PID}, pids)
	equal(t, "its end", st.State, launcher.Gone)
	awaitEnd(t, pids[0], 0) // it is said to have
}

// A disk that hangs with the state file, while a process that is to be kept waits for it to be started, and another guardian,
// does not hold up the stop.
func TestStateFileHangs_WhileSomebodyWaits(t *testing.T) {
	h := launchWith(t, launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(runners("web", 1))}}).ready()
	next := hang(t, h.dir)
	kill(t, h.running("web")[0].PID)
	kill(t, guardians(t, os.Getpid())[0])
	missed, spawning := false, false
	h.until("the guardian is missed, and web-2 is about to be started", func(e launcher.Event) bool {
		missed = missed || e.Kind == launcher.Alarm
		spawning = spawning || e.Process == "web-2" && e.To == launcher.Spawning
		return missed && spawning
	})
	h.close()
	disk, err := os.OpenFile(next, os.O_RDWR, 0) // now it goes on
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) { // and is let go of
		if _, err := os.Stat(next); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(late) {
			t.Fatal("the state file is not written")
		}
	}
}

// While the state file cannot be written, nobody is started whom the next launcher would have to know of. Others are.
func TestStateFileFails_NoneIsKept(t *testing.T) {
	web := kept(runners("web", 1))
	web.Restart.MaxBackoff, web.Restart.CrashLimit = web.Restart.MinBackoff, -1
	h := launchWith(t, launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web, runners("other", 1)}}).ready()
	clear := obstruct(t, h.dir)
	kill(t, h.running("web")[0].PID)
	kill(t, h.running("other")[0].PID)
	var crashed, other bool
	h.until("web-2 is not started, and other-2 is", func(e launcher.Event) bool {
		if e.Process == "web-2" && e.To.Ended() {
			crashed = true
			if want := "it was not started, since the next launcher would not know of it: "; !strings.Contains(e.Message, want) {
				t.Errorf("it says %q, and not %q", e.Message, want)
			}
		}
		other = other || e.Process == "other-2" && e.To == launcher.Ready
		return crashed && other || e.Process == "web-2" && e.To == launcher.Ready
	})
	equal(t, "web-2 is refused", crashed, true)
	clear()
	h.ready()
	st := h.running("web")[0]
	awaitInFile(t, launcher.StateIn(h.dir), `"`+st.ID+`"`)
}

// A start that the state file has held up is no failure of the process: no group is given up for it.
func TestStateFileFails_IsNoCrashLoop(t *testing.T) {
	web := kept(runners("web", 1))
	web.Restart.MinBackoff, web.Restart.CrashLimit = time.Millisecond, 2 // of which the end of web-1 is one
	h := launchWith(t, launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}).ready()
	clear := obstruct(t, h.dir)
	kill(t, h.running("web")[0].PID)
	withheld := 0
	h.until("three were not started", func(e launcher.Event) bool {
		if e.Process != "web-1" && e.Kind == launcher.Restart {
			withheld++
			equal(t, "what is told", strings.HasPrefix(e.Message, "not started, which counts as no failure; another one is started in "), true)
		}
		return withheld == 3 || e.Kind == launcher.Alarm && strings.Contains(e.Message, "given up")
	})
	clear()
	h.ready()
	equal(t, "how many were not started", withheld >= 3, true)
}

// The listeners of a group that was kept are those of the group that has their addresses now, by whatever name: a client that waits is
// served.
func TestKept_ListenersOfARenamedGroup(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	web.Listen = []launcher.Listen{{Name: "http", Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").hears("ready").kill()

	cfg.Groups[0].Name = "web2"
	cfg.Groups[0].Listen = []launcher.Listen{{Name: "front", Address: web.Listen[0].Address}}
	h := launchWith(t, cfg)
	equal(t, "outcome of the old group", h.ends("web-1").Outcome, launcher.Unknown)
	h.ready()
	if err := fetch(&http.Client{Timeout: tooLong}, "http://"+web.Listen[0].Address); err != nil {
		t.Error(err)
	}
}
