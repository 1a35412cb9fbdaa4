package proc_test

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

func init() {
	roles["ignore"] = func([]string) {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		forever()
	}
	roles["stopped"] = func([]string) {
		fmt.Println("ready")
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		forever()
	}
	// The rest start others, which print the pid. Their arguments: how to start it, and whether the leader waits.
	roles["leave"] = func(args []string) {
		leave(args[0], "hidden")
		if args[1] == "wait" {
			signal.Ignore(syscall.SIGTERM)
			forever()
		}
		if args[1] != "exit" { // the leader lives until it is told otherwise
			io.Copy(io.Discard, os.Stdin)
		}
	}
	roles["leave-twice"] = func(args []string) { leave(args[0], "hidden") }
	roles["hidden"] = func([]string) {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println(os.Getpid())
		os.NewFile(3, "told").Close()
		if os.Getenv("UNTIL") != "" { // for one that escapes: until the test ends
			io.Copy(io.Discard, os.NewFile(4, "until"))
			os.Exit(0)
		}
		forever()
	}
	roles["polite"] = func([]string) {
		fmt.Println(os.Getpid())
		os.NewFile(3, "told").Close()
		forever()
	}
	roles["pingable"] = func([]string) { fmt.Println("ready"); io.Copy(os.Stdout, os.Stdin) }
	// A program that starts a child, by a thread that ends right after, and then waits.
	roles["parent"] = func([]string) {
		spec := self("pingable")
		spec.ParentDeath, spec.NoCgroup = syscall.SIGKILL, true
		spec.Stdin, spec.Stdout, spec.Stderr = os.Stdin, os.Stdout, os.Stderr
		spec.ExtraFiles = []*os.File{os.NewFile(3, "until")}
		var thread sync.WaitGroup
		thread.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if _, err := proc.Start(spec); err != nil {
				panic(err)
			}
		})
		thread.Wait()
		forever()
	}
}

// leave starts the role in one of the ways to get away, and returns when it has printed its pid and closed what it was
// given for that.
func leave(how, role string) {
	told, tell, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0])
	if how != "fork" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	switch how {
	case "twice": // another fork, and it is init's child
		role = "leave-twice setsid"
	case "escape": // the same, and without the mark
		os.Unsetenv("SWANSONG_PROC")
		role = "leave-twice setsid"
	}
	cmd.Env = append(os.Environ(), asRole+"="+role)
	cmd.Stdout = os.Stdout
	cmd.ExtraFiles = []*os.File{tell}
	switch os.Getenv("UNTIL") {
	case "3": // as the test has passed it
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(3, "until"))
		cmd.Env = append(cmd.Env, "UNTIL=4")
	case "4":
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(4, "until"))
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	tell.Close()
	io.Copy(io.Discard, told)
	if how == "twice" || how == "escape" {
		cmd.Wait() // it has closed what it was given, and still takes a moment to be gone
	}
}

// alive asks the kernel. A zombie that nobody reaps is dead.
func alive(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// contained runs a test under each kind of containment that is to be had.
func contained(t *testing.T, test func(t *testing.T, contain func(proc.Spec) proc.Spec)) {
	t.Run("walk", func(t *testing.T) {
		test(t, func(s proc.Spec) proc.Spec { s.NoCgroup = true; return s })
	})
	t.Run("cgroup", func(t *testing.T) {
		if kind := start(t, self("exit 0")).Containment(); kind != "cgroup" {
			t.Skip("no cgroup of version 2 can be made here")
		}
		test(t, func(s proc.Spec) proc.Spec { return s })
	})
}

// Who looks at /proc sees what was there before he looked, also where others look all the time.
func TestLooksAreNew(t *testing.T) {
	var lookers sync.WaitGroup
	for range 8 {
		lookers.Go(func() {
			for range 100 {
				cmd := exec.Command("true")
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				if !proc.Listed(cmd.Process.Pid) { // as a zombie at least
					t.Errorf("pid %d has been started, and is not there", cmd.Process.Pid)
				}
				cmd.Wait()
			}
		})
	}
	lookers.Wait()
}

// A process without any environment may be about to become another program. After a while it is not, and holds up nobody.
func TestWalk_ProcessWithoutEnvironment(t *testing.T) {
	spec := self("wait")
	spec.NoCgroup = true
	p := start(t, spec)
	says(t, p)
	bare := exec.Command("sleep", "60")
	bare.Env = []string{}
	if err := bare.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { bare.Process.Kill(); bare.Wait() }()
	for end := time.Now().Add(tooLong); p.Unsure(); {
		if time.Now().After(end) {
			t.Fatal("nobody knows whose it is, for ever")
		}
	}
}

// Who has executed something else has been without an environment only since then.
func TestWalk_ProcessWithoutEnvironmentAgain(t *testing.T) {
	spec := self("wait")
	spec.NoCgroup = true
	p := start(t, spec)
	says(t, p)
	bare := exec.Command("sh", "-c", `read x; exec env -i A=1 sh -c "echo; read x; exec env -i sleep 60"`)
	bare.Env = []string{}
	in, out := pipes(t, bare)
	if err := bare.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { bare.Process.Kill(); bare.Wait() }()
	until := func(what string, done func() bool) {
		for end := time.Now().Add(tooLong); !done(); {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	until("nobody knows whose it is, for ever", func() bool { return !p.Unsure() })
	in.Write([]byte("\n"))
	out.Read(make([]byte, 1))
	until("it has an environment, and nobody knows whose it is", func() bool { return !p.Unsure() })
	in.Write([]byte("\n"))
	until("it does not execute sleep", func() bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", bare.Process.Pid))
		return string(name) == "sleep\n"
	})
	if !p.Unsure() {
		t.Error("it has lost its environment just now, as in the middle of an exec, and is taken for one that never had any")
	}
}

func pipes(t *testing.T, cmd *exec.Cmd) (io.Writer, io.Reader) {
	t.Helper()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmp.Or(err1, err2); err != nil {
		t.Fatal(err)
	}
	return in, out
}

func TestEnd_Escalates(t *testing.T) {
	contained(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		for _, test := range []struct {
			role string
			want syscall.Signal
			kill bool
		}{
			{"wait", syscall.SIGTERM, false},
			{"ignore", syscall.SIGKILL, true},
			{"stopped", syscall.SIGTERM, false}, // SIGCONT lets it see the SIGTERM
		} {
			t.Run(test.role, func(t *testing.T) {
				p := start(t, contain(self(test.role)))
				says(t, p)
				at := proc.Deadlines{Kill: time.Now().Add(tooLong), GiveUp: time.Now().Add(2 * tooLong)}
				if test.kill {
					at.Kill = time.Time{}
				}
				exit, err := p.End(at)
				if err != nil || exit.Signal != test.want || exit.Killed != test.kill || !exit.Terminated {
					t.Errorf("%+v, %v; want the end by %v", exit, err, test.want)
				}
			})
		}
	})
}

// Nobody gets away: whatever the leader leaves behind is gone when the process is Done, however the leader ended.
func TestNoSurvivor(t *testing.T) {
	contained(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		for _, how := range []string{"fork", "setsid", "twice"} {
			for _, leader := range []string{"exit", "read", "wait"} {
				t.Run(how+"/"+leader, func(t *testing.T) {
					spec := contain(self("leave " + how + " " + leader))
					spec.Linger = -1 // it ignores SIGTERM anyway
					spec.Subreaper = how == "twice"
					p := start(t, spec)
					pid, err := strconv.Atoi(says(t, p))
					if err != nil {
						t.Fatal(err)
					}
					switch leader {
					case "read":
						if !alive(pid) {
							t.Error("it ended before the leader did")
						}
						p.Stdin().Close()
					case "wait":
						p.End(soon())
					}
					exit := ends(t, p)
					if alive(pid) {
						t.Errorf("pid %d lives", pid)
					}
					if len(exit.Survivors) != 0 {
						t.Errorf("survivors: %v", exit.Survivors)
					}
					// The leader and it die of the same cgroup.kill, so whether it was left is a race then.
					if leader != "wait" && (len(exit.Left) != 1 || exit.Left[0].PID != pid) {
						t.Errorf("left: %v, want pid %d", exit.Left, pid)
					}
				})
			}
		}
	})
}

// What is left behind has Linger to follow by itself, and is told with SIGTERM.
func TestLinger(t *testing.T) {
	contained(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		roleOf := func(s string) proc.Spec { spec := contain(self(s)); spec.Linger = time.Hour; return spec }
		p := start(t, roleOf("leave-polite"))
		says(t, p)
		exit := ends(t, p) // long before the hour is over
		if len(exit.Left) != 1 || len(exit.Survivors) != 0 {
			t.Errorf("%+v", exit)
		}
	})
}

func init() {
	roles["leave-polite"] = func([]string) { leave("fork", "polite") }
}

// Members names who is there, and Exited comes before Done while somebody is left.
func TestMembers(t *testing.T) {
	contained(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		spec := contain(self("leave fork read"))
		spec.Linger = time.Hour
		p := start(t, spec)
		pid, _ := strconv.Atoi(says(t, p))
		var pids []int
		for _, m := range p.Members() {
			pids = append(pids, m.PID)
		}
		if len(pids) != 2 || pids[0] != p.Pid() || pids[1] != pid {
			t.Errorf("members %v, want the leader %d and %d", pids, p.Pid(), pid)
		}
		p.Stdin().Close()
		<-p.Exited()
		select {
		case <-p.Done():
			t.Error("Done while it lingers")
		default:
		}
		if m := p.Members(); len(m) != 1 || m[0].PID != pid {
			t.Errorf("members %v, want %d alone", m, pid)
		}
		if err := syscall.Kill(p.Pid(), 0); err != nil { // a zombie, that is
			t.Errorf("the leader's pid is free for others although its group lives: %v", err)
		}
		p.Kill()
		if exit := ends(t, p); exit.Killed {
			t.Errorf("the leader had ended before the kill: %+v", exit)
		}
		if len(p.Members()) != 0 {
			t.Errorf("members after the end: %v", p.Members())
		}
	})
}

// A grandchild that got away from everything and holds the pipe does not hold up the reader, who still gets all of it.
func TestOutput_HeldByAnEscaped(t *testing.T) {
	until, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	spec := self("leave escape exit")
	spec.NoCgroup = true
	spec.Env = append(spec.Env, "UNTIL=3")
	spec.ExtraFiles = []*os.File{until}
	p := start(t, spec)
	until.Close()
	text, err := io.ReadAll(p.Stdout()) // it prints its pid, and keeps the pipe
	if err != nil {
		t.Error(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !alive(pid) {
		t.Errorf("%q should be the pid of one who got away: %v", text, err)
	}
	if exit := ends(t, p); exit.Code != 0 || len(exit.Survivors) != 0 {
		t.Errorf("%+v", exit)
	}
	end.Close()
}

// Nobody who holds the write end of until is left when the parent dies, and until then its child is well.
func TestParentDeath(t *testing.T) {
	until, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer until.Close()
	spec := self("parent")
	spec.NoCgroup = true
	spec.ExtraFiles = []*os.File{theirs}
	parent := start(t, spec)
	theirs.Close()
	if got := says(t, parent); got != "ready" {
		t.Fatalf("the child says %q", got)
	}
	for range 3 { // the thread that called Start is gone
		fmt.Fprintln(parent.Stdin(), "ping")
		if got := says(t, parent); got != "ping" {
			t.Fatalf("the child says %q", got)
		}
	}
	parent.Signal(syscall.SIGKILL)
	io.Copy(io.Discard, until) // the kernel closes it as the child dies
	ends(t, parent)
}

// What is not known to have ended is called so. A process that is given no time at all will do, but it may be quicker.
func TestEnd_Unconfirmed(t *testing.T) {
	for range 100 {
		p := start(t, self("ignore"))
		says(t, p)
		exit, err := p.End(proc.Deadlines{})
		if err == nil {
			continue
		}
		if !errors.Is(err, proc.ErrUnconfirmed) || exit.State != nil || exit.Code != -1 {
			t.Errorf("%+v, %v; want ErrUnconfirmed", exit, err)
		}
		if exit := ends(t, p); exit.Signal != syscall.SIGKILL {
			t.Errorf("the waiter goes on, and finds %v", exit)
		}
		return
	}
	t.Error("a hundred processes have ended in no time")
}

// What one look at /proc misses, the next one finds. The looks are made up: which of them misses whom nobody can arrange.
func TestWalk_LooksAgain(t *testing.T) {
	type look struct {
		found  []int
		unsure bool
	}
	const leader, child, other = 1, 2, 3
	nobody, alone := look{}, look{found: []int{leader}}
	for _, test := range []struct {
		name  string
		looks []look // the last one is there to stay
		want  []int
		after int // looks
	}{
		{"somebody at once", []look{{found: []int{leader, child}}}, []int{leader, child}, 1},
		{"who forked has died, and his child is on the next list", []look{nobody, {found: []int{child}}}, []int{child}, 2},
		{"the leader's child is on the next list", []look{alone, {found: []int{leader, child}}}, []int{leader, child}, 2},
		{"nobody, and nobody", []look{nobody, nobody}, nil, 2},
		{"the leader, alone", []look{alone, alone}, []int{leader}, 2},
		{"somebody has no environment for a moment", []look{{found: []int{child}, unsure: true}, {found: []int{child, other}}}, []int{child, other}, 2},
		{"nobody, and then somebody of whom it cannot tell", []look{nobody, {unsure: true}, nobody, {found: []int{other}}}, nil, 3},
		{"somebody has none for good", []look{{found: []int{child}, unsure: true}}, []int{child}, proc.MaxLooks},
	} {
		t.Run(test.name, func(t *testing.T) {
			looks := 0
			var got []int
			for _, m := range proc.Walk(func() (found []proc.Member, unsure bool) {
				l := test.looks[min(looks, len(test.looks)-1)]
				looks++
				for _, pid := range l.found {
					found = append(found, proc.Member{PID: pid})
				}
				return found, l.unsure
			}, func(m proc.Member) bool { return m.PID == leader }) {
				got = append(got, m.PID)
			}
			if looks != test.after || !slices.Equal(got, test.want) {
				t.Errorf("after %d looks %v, want %v after %d", looks, got, test.want, test.after)
			}
		})
	}
}

// Processes come and go by the hundred without leaving anybody behind, whoever is ended how and at what point. Many are
// caught between a fork and the exec that follows, when they do not look like themselves.
func TestStress(t *testing.T) {
	token := rand.Text()
	var all sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range 200 {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			spec := self([]string{"leave twice exit", "exit 7", "leave twice exit", "ignore", "leave twice wait", "wait", "leave fork exit"}[i%7])
			spec.Env = append(spec.Env, "STRESS="+token)
			spec.NoCgroup, spec.Linger = i%4 > 0, -1
			p, err := proc.Start(spec)
			if err != nil {
				t.Error(err)
				return
			}
			defer p.Close()
			if i%3 == 0 {
				io.ReadFull(p.Stdout(), make([]byte, 1))
			} else {
				time.Sleep(time.Duration(mathrand.IntN(10_000)) * time.Microsecond) // a point in its life, any will do
			}
			if exit, err := p.End(soon()); err != nil || len(exit.Survivors) > 0 {
				t.Errorf("%+v, %v", exit, err)
			}
		})
	}
	all.Wait()
	for _, pid := range carrying("STRESS=" + token) {
		t.Errorf("pid %d has survived", pid)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// carrying returns who was started with a variable in the environment.
func carrying(variable string) (pids []int) {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		env, _ := os.ReadFile("/proc/" + d.Name() + "/environ")
		if pid, err := strconv.Atoi(d.Name()); err == nil && strings.Contains(string(env), variable) {
			pids = append(pids, pid)
		}
	}
	return pids
}
