package proc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
)

// After an exec, the new program ends the processes that the old program has started in a
// containment, except for those that the old program has named, and removes their cgroups. It
// leaves alone the named processes, and children outside of the containment, even if they have
// exited.
func TestEndStrays_EndsOnlyProcessesThatCallerDoesNotName(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		var in proc.Containment
		if in = proc.NewContainment(); kind == "cgroup" {
			in.Make()
		} else {
			in.Cgroup = ""
		}
		defer in.Empty(time.Now().Add(tooLong))
		// begin starts a process without package proc. A program has such children after an upgrade
		// has executed it in the place of the program that started them.
		begin := func(name string, args ...string) (cmd *exec.Cmd, cgroup string) {
			cmd = exec.Command(args[0], args[1:]...)
			cmd.Env = append(os.Environ(), proc.MarkVariable+"="+in.Mark)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if cgroup = filepath.Join(in.Cgroup, "swansong-"+name); in.Cgroup != "" {
				if err := os.Mkdir(cgroup, 0o755); err != nil {
					t.Fatal(err)
				}
				dir, err := os.Open(cgroup)
				if err != nil {
					t.Fatal(err)
				}
				defer dir.Close()
				cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return cmd, cgroup
		}
		stray, strayCgroup := begin("stray", "sleep", "1000")
		ended, endedCgroup := begin("ended", "true")
		living, livingCgroup := begin("living", "sleep", "1000")
		known, knownCgroup := begin("known", "true")
		awaitZombie(t, ended.Process.Pid)
		awaitZombie(t, known.Process.Pid)
		children := proc.Children()
		other := exec.Command("true")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		awaitZombie(t, other.Process.Pid)

		in.EndStrays(children, []proc.Adoptable{
			{Containment: proc.Containment{Cgroup: livingCgroup}, PID: living.Process.Pid},
			{Containment: proc.Containment{Cgroup: knownCgroup}, PID: known.Process.Pid},
		}, time.Now().Add(tooLong))

		for _, gone := range []*exec.Cmd{stray, ended} {
			if err := gone.Wait(); err == nil || !strings.Contains(err.Error(), "no child processes") {
				t.Errorf("the stray process %v was not reaped: %v", gone.Args, err)
			}
		}
		for _, cmd := range []*exec.Cmd{known, other} {
			if err := cmd.Wait(); err != nil {
				t.Errorf("the exit code of %v is lost: %v", cmd.Args, err)
			}
		}
		if in.Cgroup != "" {
			there := map[string]bool{}
			for _, dir := range []string{strayCgroup, endedCgroup, livingCgroup, knownCgroup} {
				_, err := os.Stat(dir)
				there[strings.TrimPrefix(filepath.Base(dir), "swansong-")] = err == nil
			}
			testkit.Equal(t, "cgroups", there, map[string]bool{"stray": false, "ended": false, "living": true, "known": true})
		}
		living.Process.Kill()
		if err := living.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("the known process was ended: %v", err)
		}
	})
}

// awaitZombie waits until a child has exited. It does not reap the child.
func awaitZombie(t *testing.T, pid int) {
	t.Helper()
	for late := time.Now().Add(tooLong); ; runtime.Gosched() {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil || time.Now().After(late) {
			t.Fatalf("the process does not end: %v", err)
		}
		if strings.Contains(string(stat), ") Z ") {
			return
		}
	}
}
