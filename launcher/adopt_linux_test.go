package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/mtls/mtlstest"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// orphans starts a launcher with a group that keeps its processes, kills the launcher, and returns
// the pids of the processes.
func orphans(t *testing.T, g launcher.GroupConfig) (cfg launcher.Config, pids []int) {
	t.Helper()
	b := newBrood(t)
	cfg = launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{b.of(g)}}
	startAnother(t, cfg, "").checkLine("ready").kill()
	pids = b.alive()
	testkit.Equal(t, "processes without a launcher", len(pids), g.Desired)
	return cfg, pids
}

// The next launcher rolls kept processes that were started with another configuration.
func TestLauncherDeath_NextLauncherRollsProcessesToItsConfiguration(t *testing.T) {
	cfg, _ := orphans(t, kept(runners("web", 3)))
	cfg.Groups[0].Env = append(cfg.Groups[0].Env, "NEW=1")
	h := launchWith(t, cfg)
	h.readUntil("the roll ends", func(e launcher.Event) bool {
		if e.Kind == launcher.RollFailed {
			t.Fatalf("the roll has failed\n%s", h.story())
		}
		return e.Kind == launcher.RollDone
	})
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 3})
	testkit.Equal(t, "smallest number of ready processes", leastReady(h), 3)
	if err := h.Rollback(soon(t), "web", "test"); !errors.Is(err, launcher.ErrNotRolling) {
		t.Errorf("Rollback after the roll: %v", err)
	}
}

// The next launcher adopts kept processes that were started with an earlier configuration. Before
// it stops them, it runs the pre-stop hooks of the present configuration, with the environment of
// that configuration.
func TestLauncherDeath_HooksOfAdoptedProcessesHavePresentEnvironment(t *testing.T) {
	t.Setenv("OF_LAUNCHER", "visible")
	g := kept(runners("web", 1))
	g.Env = append(g.Env, "OWN=old")
	cfg, _ := orphans(t, g)
	file := filepath.Join(cfg.Dir, "variables")
	now := &cfg.Groups[0]
	now.ClearEnv, now.Env = true, append(slices.Clone(now.Env), "OWN=new of {id}")
	now.PreStop = []launcher.Hook{{Command: []string{"/bin/sh", "-c", `echo "$OWN, $OF_LAUNCHER, $SWANSONG_PROCESS_ID" > ` + file}, Timeout: time.Minute}}
	launchWith(t, cfg).readUntil("the roll ends", func(e launcher.Event) bool { return e.Kind == launcher.RollDone })
	text, err := os.ReadFile(file)
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "variables of the hook", string(text), "new of web-1, , web-1\n")
}

// While the next launcher waits for canaries, a kept process fails. It is replaced at once by a
// process of the new configuration, because the launcher does not know the old one.
func TestLauncherDeath_FailedProcessIsReplacedWhileRollWaitsForCanary(t *testing.T) {
	cfg, pids := orphans(t, kept(runners("web", 3)))
	g := &cfg.Groups[0]
	g.Env = append(slices.Clone(g.Env), "NEW=1")
	g.Roll = launcher.RollConfig{Canary: 1, CanaryWait: time.Hour}
	h := launchWith(t, cfg)
	h.readUntil("the canary is waited for", step("canary", "the first 1 are available"))
	h.readUntil("an old process has ended", func(e launcher.Event) bool { return e.To == launcher.Gone })
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 2, 2: 1})
	for _, st := range h.running("web") {
		if slices.Contains(pids, st.PID) {
			kill(t, st.PID)
			break
		}
	}
	h.readUntil("its replacement is ready", func(e launcher.Event) bool { return e.To == launcher.Ready })
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 1, 2: 2})
	health, _ := h.GroupHealth("web")
	if r := health.Roll; r == nil || r.Phase != "canary" {
		t.Errorf("the canary is not waited for any more: %+v", r)
	}
}

// A roll of kept processes cannot be rolled back. With on_failure rollback it pauses, an order to
// roll back is refused, and the old processes keep running. Resume continues it.
func TestLauncherDeath_RollOfAdoptedProcessesPausesInsteadOfRollingBack(t *testing.T) {
	cfg, pids := orphans(t, kept(runners("web", 2)))
	fixed := filepath.Join(cfg.Dir, "fixed")
	old := cfg.Groups[0]
	cfg.Groups[0] = kept(script("web", 2, "test -e "+fixed+" || exit 3"))
	cfg.Groups[0].Env = old.Env
	cfg.Groups[0].Roll.OnFailure = launcher.Rollback
	h := launchWith(t, cfg)
	failed := h.readUntil("the roll has failed", func(e launcher.Event) bool { return e.Kind == launcher.RollFailed })
	testkit.Equal(t, "result of the roll", failed.Roll, "paused")
	running := pidsOf(h, "web")
	for _, pid := range pids {
		if !slices.Contains(running, pid) {
			t.Errorf("pid %d was stopped; running are %v", pid, running)
		}
	}
	if err := h.Rollback(soon(t), "web", "test"); !errors.Is(err, launcher.ErrNoWayBack) {
		t.Errorf("Rollback: %v", err)
	}
	health, _ := h.GroupHealth("web")
	if r := health.Roll; r == nil || !r.Paused {
		t.Errorf("roll after Rollback: %+v", r)
	}
	if err := os.WriteFile(fixed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Resume(soon(t), "web", "mended"); err != nil {
		t.Fatalf("Resume: %v\n%s", err, h.story())
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 2})
}

// The user calls Roll before the next launcher begins to roll its kept processes. The roll of the
// user replaces the other one, and the user gets its result.
func TestLauncherDeath_RollByUserSupersedesRollOfNextLauncher(t *testing.T) {
	cfg, _ := orphans(t, kept(runners("web", 1)))
	open := filepath.Join(cfg.Dir, "open")
	web := cfg.Groups[0]
	web.Env = append(web.Env, "NEW=1")
	web.DependsOn = []string{"db"}
	// The progress deadline does not run while web waits for db, which takes longer than that
	// deadline.
	web.Roll.ProgressDeadline = 5 * time.Second
	db := script("db", 1, "until test -e "+open+"; do sleep 0.1; done; sleep 5.1")
	cfg.Groups = []launcher.GroupConfig{web, db}
	h := launchWith(t, cfg)
	over := make(chan error, 1)
	go func() { over <- h.Restart(context.Background(), "web", "test") }()
	h.readUntil("a roll has begun", func(e launcher.Event) bool { return e.Kind == launcher.RollBegun })
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := awaitRoll(t, h, over); err != nil {
		t.Errorf("%v\n%s", err, h.story())
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{3: 1})
}

// Adopted jobs with an earlier configuration run to their end, and are not run again without an
// order, although their outcome is unknown.
func TestLauncherDeath_AdoptedJobsRunToTheirEnd(t *testing.T) {
	jobs := kept(runners("job", 2))
	jobs.Job, jobs.Restart.Policy = true, launcher.Never
	cfg, pids := orphans(t, jobs)
	cfg.Groups[0] = revised(cfg.Groups[0], "2")
	h := launchWith(t, cfg)
	h.allReady("job", 2)
	kill(t, pids[0])
	h.waitForEnd(h.readUntil("a job has finished", func(e launcher.Event) bool { return e.To == launcher.Gone }).Process)
	h.waitForDesired("job", 1)
	testkit.Equal(t, "processes that still run", pidsOf(h, "job"), pids[1:])
	testkit.Equal(t, "rolls", h.count(launcher.RollBegun), 0)
}

// An operator restarts a group that waits for its dependencies. The kept processes of the group
// have finished or failed, and the restart starts them again at once.
func TestLauncherDeath_RestartOfWaitingGroupRunsFinishedProcessesAgain(t *testing.T) {
	for name, policy := range map[string]launcher.RestartPolicy{"never": launcher.Never, "on-failure": launcher.OnFailure} {
		t.Run(name, func(t *testing.T) {
			jobs := kept(runners("job", 2))
			jobs.Restart = launcher.RestartConfig{Policy: policy, MinBackoff: time.Hour, MaxBackoff: time.Hour}
			cfg, pids := orphans(t, jobs)
			open := filepath.Join(cfg.Dir, "open")
			cfg.Groups[0].DependsOn = []string{"db"}
			db := script("db", 1, "until test -e "+open+"; do sleep 0.1; done")
			db.HealthCheckTimeout = time.Hour
			cfg.Groups = append(cfg.Groups, db)
			h := launchWith(t, cfg)
			h.allReady("job", 2)
			for _, pid := range pids {
				kill(t, pid)
			}
			h.waitForEnd("job-1")
			h.waitForEnd("job-2")
			launcher.AwaitStateFile(h.Manager)
			if err := h.Restart(soon(t), "job", "once more"); err != nil {
				t.Fatal(err)
			}
			// The state file no longer says that the jobs have finished. So the next launcher runs
			// them even if this one is killed now.
			awaitInFile(t, statefile.Path(cfg.Dir), `"number":2}`)
			write(t, open)
			h.allReady("job", 2)
			health, _ := h.GroupHealth("job")
			testkit.Equal(t, "desired", health.Desired, 2)
		})
	}
}

// During a roll, the launcher is killed after a process has ended and before the state file says
// so. The next launcher does not know the outcome of that process. It raises no alarm, and
// continues the roll.
func TestLauncherDeath_NextLauncherContinuesRollIfExitIsNotInStateFile(t *testing.T) {
	dir := t.TempDir()
	ready, pids := dir+"/ready-", dir+"/pid-of-"
	b := newBrood(t)
	g := kept(b.of(script("web", 1, "echo $$ >"+pids+"{id}; until test -e "+ready+"{id}; do sleep 0.1; done")))
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	write(t, ready+"web-1")
	first := startAnother(t, cfg, "roll").checkLine("ready")
	pid, err := strconv.Atoi(strings.TrimSpace(awaitInFile(t, pids+"web-2", "\n")))
	if err != nil {
		t.Fatal(err)
	}
	awaitInFile(t, statefile.Path(cfg.Dir), fmt.Sprintf(`"pid":%d,`, pid))
	clear := obstruct(t, cfg.Dir)
	kill(t, pid)
	awaitFile(t, filepath.Join(cfg.Dir, "web-2.err"), false)
	guardian := guardians(t, first.Process.Pid)[0]
	first.kill()
	clear()
	awaitOpen(t, guardian, filepath.Join(cfg.Dir, "web-1.out")) // then the guardian opens the pipes of web-2

	h := launchWith(t, cfg)
	testkit.Equal(t, "outcome", h.waitForEnd("web-2").Outcome, launcher.Unknown)
	write(t, ready+"web-3")
	h.readUntil("the roll ends", func(e launcher.Event) bool { return e.Kind == launcher.RollDone })
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 1})
	testkit.Equal(t, "failed rolls", h.count(launcher.RollFailed), 0)
	testkit.Equal(t, "alarms", h.count(launcher.Alarm), 0)
}

// awaitOpen waits until a process has opened a file.
func awaitOpen(t *testing.T, pid int, path string) {
	t.Helper()
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) {
		open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if slices.ContainsFunc(open, func(fd string) bool { file, _ := os.Readlink(fd); return file == path }) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("process %d does not open %s", pid, path)
		}
	}
}

// The state file has everything about an adopted process at once, even if the launcher is killed
// before the process has answered.
func TestLauncherDeath_StateFileDescribesAdoptedProcessCompletely(t *testing.T) {
	h := launch(t, runners("other", 0)).ready()
	want := launcher.Remembered{Ready: 50 * time.Second, Stop: 40 * time.Second, Asked: 30 * time.Second, Granted: -20 * time.Second, Reason: "test", Grace: time.Hour, Port: 1}
	testkit.Equal(t, "entry in the state file", launcher.RestoredAndRecalled(h.Manager, kept(runners("web", 1)), want), want)
}

// A process that was adopted, and has to be killed when the launcher is stopped, is counted as such
// although its exit status cannot be known.
func TestLauncherDeath_StatsCountAdoptedProcessesKilledAtStop(t *testing.T) {
	g := kept(runners("web", 2, "--behavior", "hang"))
	g.Shutdown.Grace, g.Shutdown.Max, g.Shutdown.SIGTERMTimeout = time.Millisecond, time.Millisecond, time.Millisecond
	cfg, _ := orphans(t, g)
	h := launchWith(t, cfg).ready()
	h.close()
	s := h.Stats().Groups["web"]
	testkit.Equal(t, "ends", s.Ends, map[launcher.Outcome]uint64{launcher.Unknown: 2})
	testkit.Equal(t, "ends by force", s.ForcedAtStop, uint64(2))
}

// A process that has chosen a port and reported it to the earlier launcher is stopped over that
// port by the next one.
func TestLauncherDeath_NextLauncherStopsProcessOverTCP(t *testing.T) {
	files := launcher.TLS(mtlstest.New(t).Issue(t, "web"))
	cfg, pids := orphans(t, kept(overTCP(runners("web", 2), files)))
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "pids", pidsOf(h, "web"), pids)
	st := h.stopAndWait("web-1")
	testkit.Equal(t, "state", st.State, launcher.Gone)
	h.close()
	h.drainEvents()
	for _, e := range h.events {
		if e.Kind == launcher.Signalled || e.Kind == launcher.Alarm {
			t.Errorf("%s: %s %s; want an answered Shutdown call", e.Process, e.Kind, e.Message)
		}
	}
}

// Processes outlive their launcher (Keep), and the next launcher fails to start. The processes can
// still be reached at their socket.
func TestLauncherDeath_SocketOfKeptProcessWorksIfNextLauncherFails(t *testing.T) {
	g := kept(runners("web", 1))
	g.Listen = []launcher.Listen{{Network: "unix", Address: filepath.Join(shortDir(t), "web")}}
	cfg, pids := orphans(t, g)
	bad := cfg
	bad.Guardian = []string{"true"}
	if m, err := launcher.Start(context.Background(), bad); err == nil {
		m.Force(errors.New("the test is over")).Wait(soon(t))
		t.Fatal("the launcher was started")
	}
	get := func() error {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", g.Listen[0].Address)
		}
		return fetch(&http.Client{Timeout: tooLong, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, "http://web")
	}
	if err := get(); err != nil {
		t.Errorf("connection after the failed start: %v", err)
	}
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "pids", pidsOf(h, "web"), pids)
	if err := get(); err != nil {
		t.Errorf("connection with the next launcher: %v", err)
	}
	h.close()
	if _, err := os.Stat(g.Listen[0].Address); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket exists at the end: %v", err)
	}
}

// The guardian holds a listener for the next launcher, and no process is left. If the next launcher
// fails to start, connections that wait on the listener are not lost.
func TestLauncherDeath_WaitingConnectionsSurviveIfNextLauncherFails(t *testing.T) {
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
		t.Fatal("the launcher was started")
	}
	cfg.Groups[0].Desired = 1
	launchWith(t, cfg).ready()
	conn.SetReadDeadline(time.Now().Add(tooLong))
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 200") {
		t.Errorf("the waiting client gets %q, %v", answer, err)
	}
}

// A reload is refused, and changes nothing, if it changes a setting of a group with "keep" that
// only a restart of the launcher can change.
func TestReload_RefusesChangeOfKeptGroupThatNeedsLauncherRestart(t *testing.T) {
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
			t.Errorf("%s: health of the group to be added: %v", what, err)
		}
	}
	testkit.Equal(t, "pids", append(pidsOf(h, "held"), pidsOf(h, "web")...), before)
}

// A guardian holds the listeners of a group that a reload removes. When the group has ended,
// clients are refused, and another guardian can still replace this one.
func TestReload_ClosesListenersOfRemovedGroupInGuardian(t *testing.T) {
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
		t.Errorf("health of the removed group: %v", err)
	}
	if conn, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connected: %v, %v; want connection refused", conn != nil, err)
	}
	first := guardians(t, os.Getpid())
	testkit.Equal(t, "guardians", len(first), 1)
	kill(t, first[0])
	awaitAnotherGuardian(t, first[0])
	cfg.Groups = append(cfg.Groups, runners("held", 1)) // without keep, another group may use the address
	cfg.Groups[1].Listen = []launcher.Listen{{Address: address}}
	if err := h.Reload(soon(t), cfg, "test"); err != nil {
		t.Errorf("the address is not free: %v", err)
	}
}

// A kept process is adopted even if the next launcher cannot read its certificates: it is rolled,
// stopped by signals, and not forgotten while it runs.
func TestLauncherDeath_ProcessIsAdoptedWithoutReadableCertificates(t *testing.T) {
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
	alarm := h.readUntil("an alarm", func(e launcher.Event) bool { return e.Kind == launcher.Alarm || e.To.Ended() })
	if alarm.Kind != launcher.Alarm || alarm.Process != "web-1" || !strings.Contains(alarm.Message, files.Cert) {
		t.Fatalf("event of %s: %q", alarm.Process, alarm.Message)
	}
	h.waitForState("web-2", launcher.Ready)
	st := h.waitForEnd("web-1")
	testkit.Equal(t, "pid", []int{st.PID}, pids)
	testkit.Equal(t, "state at the end", st.State, launcher.Gone)
	awaitEnd(t, pids[0], 0) // the state file says that the process has ended
}

// A disk that hangs does not delay a stop, although a kept process and a new guardian wait for the
// state file to be written.
func TestStateFile_HangingDiskDoesNotDelayStopOfKeptGroup(t *testing.T) {
	h := launchWith(t, launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(runners("web", 1))}}).ready()
	next := hang(t, h.dir)
	kill(t, h.running("web")[0].PID)
	kill(t, guardians(t, os.Getpid())[0])
	missed, spawning := false, false
	h.readUntil("the guardian has ended and web-2 is being started", func(e launcher.Event) bool {
		missed = missed || e.Kind == launcher.Alarm
		spawning = spawning || e.Process == "web-2" && e.To == launcher.Spawning
		return missed && spawning
	})
	h.close()
	disk, err := os.OpenFile(next, os.O_RDWR, 0) // lets the blocked write continue, as if the disk worked again
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	// Wait until the temporary file is gone, which the launcher was writing.
	awaitFile(t, next, false)
}

// A kept group gets another name in the configuration. The group with the new name takes over its
// listeners, because it has the same addresses, and a waiting client is served.
func TestLauncherDeath_RenamedGroupTakesOverListeners(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	web.Listen = []launcher.Listen{{Name: "http", Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").checkLine("ready").kill()

	cfg.Groups[0].Name = "web2"
	cfg.Groups[0].Listen = []launcher.Listen{{Name: "front", Address: web.Listen[0].Address}}
	h := launchWith(t, cfg)
	testkit.Equal(t, "outcome of the old group", h.waitForEnd("web-1").Outcome, launcher.Unknown)
	h.ready()
	if err := fetch(&http.Client{Timeout: tooLong}, "http://"+web.Listen[0].Address); err != nil {
		t.Error(err)
	}
}

// The next launcher has another configuration for a group, and adopts its two processes. While the
// group waits for another one, a process ends and the group is given up. The group is not rolled
// until an operator orders it, and its other process keeps running.
func TestLauncherDeath_GivenUpGroupIsNotRolled(t *testing.T) {
	cfg, _ := orphans(t, kept(runners("web", 2)))
	open := filepath.Join(cfg.Dir, "open")
	web := &cfg.Groups[0]
	web.Env = append(slices.Clone(web.Env), "NEW=1")
	web.Restart.CrashLimit, web.DependsOn = 1, []string{"db"}
	cfg.Groups = append(cfg.Groups, script("db", 1, "until test -e "+open+"; do sleep 0.1; done"))
	h := launchWith(t, cfg)
	h.waitForState("web-1", launcher.Ready)
	st, err := h.Process("web-1")
	if err != nil {
		t.Fatal(err)
	}
	kill(t, st.PID)
	h.readUntil("the group is given up", func(e launcher.Event) bool {
		return e.Kind == launcher.Alarm && strings.Contains(e.Message, "given up after a failure")
	})
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.readUntil("the group can begin", func(e launcher.Event) bool { return e.Kind == launcher.GroupHealthy && e.Group == "db" })
	if err := h.Restart(soon(t), "db", "gives the group time to begin"); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "running", names(h.running("web")), []string{"web-2"})
	if err := h.Restart(soon(t), "web", "test"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	h.drainEvents()
	var rolls []string
	for _, e := range h.events {
		if e.Kind == launcher.RollBegun && e.Group == "web" {
			rolls = append(rolls, e.Message)
		}
	}
	testkit.Equal(t, "rolls", rolls, []string{"from revision 2 to 3: test"})
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{3: 2})
}
