package proc_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

func init() {
	// A program that starts a child in a pen, says by what it is known, and waits for its own end.
	roles["keeper"] = func(args []string) {
		pen := proc.NewPen()
		if args[0] == "walk" {
			pen.Cgroup = ""
		}
		pen.Make()
		spec := self("forked twice")
		spec.In, spec.NoCgroup = pen, args[0] == "walk"
		p, err := proc.Start(spec)
		if err != nil {
			panic(err)
		}
		for lines := bufio.NewScanner(p.Stdout()); lines.Scan() && lines.Text() != "left"; {
		}
		json.NewEncoder(os.Stdout).Encode(p.Kept(pen))
		forever()
	}
	roles["forked"] = func(args []string) {
		signal.Ignore(syscall.SIGTERM)
		leave(args[0], "hidden")
		syscall.Wait4(-1, nil, 0, nil) // the one in between
		fmt.Println("left")
		forever()
	}
}

// penned runs a test with pens with and without a cgroup.
func penned(t *testing.T, test func(t *testing.T, kind string)) {
	t.Run("walk", func(t *testing.T) { test(t, "walk") })
	t.Run("cgroup", func(t *testing.T) {
		pen := proc.NewPen()
		pen.Make()
		_, err := os.Stat(pen.Cgroup)
		pen.Empty(time.Now())
		if err != nil {
			t.Skip("no cgroup of version 2 can be made here")
		}
		test(t, "cgroup")
	})
}

// orphan returns a process whose parent has been killed. It ignores SIGTERM, and so does its grandchild, which has a session
// of its own.
func orphan(t *testing.T, kind string) proc.Kept {
	t.Helper()
	spec := self("keeper " + kind)
	spec.NoCgroup = true
	spec.Linger = -1
	parent := start(t, spec)
	var k proc.Kept
	if err := json.Unmarshal([]byte(says(t, parent)), &k); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Empty(time.Now().Add(tooLong)) })
	// Only the parent, as SIGKILL does it: what contains it here would end the child, too.
	syscall.Kill(parent.Pid(), syscall.SIGSTOP)
	if !k.Alive() {
		t.Fatal("the child is not there")
	}
	return k
}

// marked returns those who are in a pen.
func marked(pen proc.Pen) []int { return carrying(pen.Mark) }

// There is nothing of a pen before it is made: somebody has to have written down its name by then.
func TestPen_Make(t *testing.T) {
	penned(t, func(t *testing.T, kind string) {
		pen := proc.NewPen()
		if kind == "walk" {
			pen.Cgroup = ""
		}
		there := func() bool { _, err := os.Stat(pen.Cgroup); return err == nil }
		if there() {
			t.Error("it is there before it is made")
		}
		pen.Make()
		if want := kind == "cgroup"; there() != want {
			t.Errorf("there is a cgroup: %v, want %v", there(), want)
		}
		if left := pen.Empty(time.Now()); len(left) > 0 || there() {
			t.Errorf("left: %v; it is there: %v", left, there())
		}
	})
}

// Who is in a pen is ended by somebody who has started nobody in it, and knows no pid.
func TestPen_Empty(t *testing.T) {
	penned(t, func(t *testing.T, kind string) {
		k := orphan(t, kind)
		if n := len(marked(k.Pen)); n != 2 {
			t.Fatalf("%d processes carry the mark, want the child and its grandchild", n)
		}
		if left := k.Pen.Empty(time.Now().Add(tooLong)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if pids := marked(k.Pen); len(pids) > 0 {
			t.Errorf("they live: %v", pids)
		}
		if _, err := os.Stat(k.Cgroup); k.Cgroup != "" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup is still there: %v", err)
		}
	})
}

// A pen is enough to find who was started in it.
func TestPen_Leader(t *testing.T) {
	penned(t, func(t *testing.T, kind string) {
		k := orphan(t, kind)
		if got, ok := k.Pen.Leader(); !ok || got != k {
			t.Errorf("got %+v, %v; want %+v", got, ok, k)
		}
		k.Pen.Empty(time.Now().Add(tooLong))
		if got, ok := k.Pen.Leader(); ok {
			t.Errorf("nobody is there, but %+v", got)
		}
	})
}

// An adopted process can be ended as one's own, with what it has started. How it has ended is not known, and not said.
func TestAdopt(t *testing.T) {
	penned(t, func(t *testing.T, kind string) {
		k := orphan(t, kind)
		p, err := proc.Adopt(k, proc.Spec{Args: []string{"orphan"}, Linger: -1})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(p.Members()); n != 2 || p.Pid() != k.PID {
			t.Errorf("pid %d with %d members; want %d with 2", p.Pid(), n, k.PID)
		}
		exit, err := p.End(soon())
		if err != nil || !exit.Unseen || exit.State != nil || len(exit.Survivors) > 0 || !exit.Killed {
			t.Errorf("%+v, %v", exit, err)
		}
		if got, want := exit.String(), "ended, and nobody can know how"; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		if pids := marked(k.Pen); len(pids) > 0 {
			t.Errorf("they live: %v", pids)
		}
		if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("a signal after the end: %v", err)
		}
	})
}

// A process that has ended is not mistaken for another one that has its number by now.
func TestAdopt_ReusedPid(t *testing.T) {
	other := start(t, self("wait"))
	says(t, other)
	k := other.Kept(proc.Pen{Mark: "nobody's"})
	k.Born-- // so it was another process that was to be kept
	p, err := proc.Adopt(k, proc.Spec{Args: []string{"gone"}, Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	p.Terminate()
	if exit := ends(t, p); !exit.Unseen || len(exit.Left) > 0 {
		t.Errorf("%+v", exit)
	}
	select {
	case <-other.Exited():
		t.Errorf("it was hit instead: %v", ends(t, other))
	default:
	}
	if k.Alive() {
		t.Error("it counts as alive")
	}
}

// What the leader has left behind, before anybody could adopt it, is ended all the same.
func TestAdopt_TheLeaderHasGone(t *testing.T) {
	penned(t, func(t *testing.T, kind string) {
		k := orphan(t, kind)
		syscall.Kill(k.PID, syscall.SIGKILL)
		p, err := proc.Adopt(k, proc.Spec{Args: []string{"orphan"}, Linger: -1})
		if err != nil {
			t.Fatal(err)
		}
		if exit := ends(t, p); len(exit.Left) != 1 || len(exit.Survivors) > 0 {
			t.Errorf("left: %v, survivors: %v; want one, and none", exit.Left, exit.Survivors)
		}
		if pids := marked(k.Pen); len(pids) > 0 {
			t.Errorf("they live: %v", pids)
		}
	})
}

// BenchmarkPen_Empty is what it takes to look for who is in a pen: whoever starts pays it once.
func BenchmarkPen_Empty(b *testing.B) {
	for b.Loop() {
		pen := proc.NewPen()
		pen.Make()
		pen.Empty(time.Now())
	}
	b.ReportMetric(float64(len(carrying(""))), "processes")
}
