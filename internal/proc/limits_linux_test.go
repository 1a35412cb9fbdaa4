package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
)

func init() {
	// The role "moves" enters the cgroup args[0] and starts a process, which is in the same cgroup.
	// Then it enables the controller of CPU time, for which package proc moves both processes into
	// a cgroup below. It prints the pid of the process.
	roles["moves"] = func(args []string) {
		if err := os.WriteFile(filepath.Join(args[0], "cgroup.procs"), []byte("0"), 0); err != nil {
			panic(err)
		}
		spec := self("wait")
		spec.NoCgroup = true
		beside, err := proc.Start(spec)
		if err != nil {
			panic(err)
		}
		// Ignore the error: the machine may lack the controller, or a process may stay in the
		// cgroup.
		proc.EnableCPU()
		fmt.Println(beside.Pid())
		forever()
	}

	// The role "enables-in" enables the controller of memory in the directory args[0]. Nothing is
	// written: the role prints each text with the file to which it would be written, and the error.
	// Two kinds of writes fail: those to the file args[1], and those of the text args[2], in which
	// _ stands for a space. The latter fail as if processes stayed in the cgroup.
	roles["enables-in"] = func(args []string) {
		writes := ""
		err := proc.EnableMemoryIn(args[0], func(file, text string) error {
			writes += fmt.Sprintf("%s to %s, ", strings.ReplaceAll(text, strconv.Itoa(os.Getpid()), "PID"), file)
			switch {
			case file == args[1]:
				return syscall.EACCES
			case text == strings.ReplaceAll(args[2], "_", " "):
				return syscall.EBUSY
			}
			return nil
		})
		fmt.Printf("%serror: %v\n", strings.ReplaceAll(writes, "cgroup.subtree_control", "CONTROL"), err)
		forever()
	}
}

// If another program has enabled the controller of CPU time in the cgroup of this program, the
// kernel has made the cgroup threaded: it accepts no process below it. So this program disables the
// controller, moves out of the cgroup, and enables the controller again, even if the one that it
// needs is enabled already, and even if the move fails. With processes of other programs in the
// cgroup, it writes nothing and returns an error. While it writes, no other call of enable does.
//
// The cgroup of the test is an ordinary directory with the files that a real one has, because few
// machines that run this test let a program enable a controller.
func TestLimits_ProgramLeavesCgroupThatIsThreaded(t *testing.T) {
	const moved = "PID to swansong.main/cgroup.procs, "
	for _, c := range []struct{ on, others, refuses, want string }{
		{"cpu", "", "- -", "-cpu to CONTROL, " + moved + "+cpu +memory to CONTROL, error: <nil>"},
		{"cpu memory", "", "- -", "-cpu -memory to CONTROL, " + moved + "+cpu +memory to CONTROL, error: <nil>"},
		{"cpu memory", "1", "- -", "error: the cgroup DIR has other processes, such as pid 1; start this program in a cgroup of its own, as systemd does"},
		{"cpu", "", "swansong.main/cgroup.procs -", "-cpu to CONTROL, " + moved + "+cpu to CONTROL, error: permission denied"},
		{"cpu", "", "- +cpu_+memory", "-cpu to CONTROL, " + strings.Repeat(moved+"+cpu +memory to CONTROL, ", 10) + "+cpu to CONTROL, error: device or resource busy"},
		{"cpu", "", "swansong.main/cgroup.procs +cpu", "-cpu to CONTROL, " + moved + "+cpu to CONTROL, error: permission denied; " +
			"the cgroup DIR has lost the controllers cpu, which cannot be enabled again: device or resource busy"},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "swansong.main"), 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"cgroup.type": "domain threaded\n", "cgroup.subtree_control": c.on + "\n", "cgroup.controllers": "cpu memory\n",
			"cgroup.procs": c.others + "\n"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		program := start(t, self("enables-in "+dir+" "+c.refuses))
		got := strings.ReplaceAll(readLine(t, program), dir, "DIR")
		testkit.Equal(t, fmt.Sprintf("writes with %q enabled, if the kernel refuses %q", c.on, c.refuses), got, c.want)
	}
}

// Controllers of limits need a cgroup without processes, although the kernel enables that of CPU
// time in any cgroup. So a program leaves its cgroup before it enables a controller, together with
// the processes that it has started there, such as the guardian of a launcher. Processes of other
// programs stay in the cgroup.
func TestLimits_ProgramMovesItselfAndItsProcessesOutOfItsCgroup(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		if kind != "cgroup" {
			return
		}
		base := proc.NewContainment()
		base.Make()
		other := exec.Command("sleep", "1000")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { other.Process.Kill(); other.Wait() }()
		if err := os.WriteFile(filepath.Join(base.Cgroup, "cgroup.procs"), []byte(strconv.Itoa(other.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
		program := start(t, self("moves "+base.Cgroup))
		beside := readLine(t, program)
		in := func(cgroup string) []string {
			text, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
			if err != nil {
				t.Fatal(err)
			}
			pids := strings.Fields(string(text))
			slices.Sort(pids)
			return pids
		}
		moved := []string{beside, strconv.Itoa(program.Pid())}
		slices.Sort(moved)
		testkit.Equal(t, "processes that were moved", in(filepath.Join(base.Cgroup, "swansong.main")), moved)
		testkit.Equal(t, "processes that stay", in(base.Cgroup), []string{strconv.Itoa(other.Process.Pid)})
		base.Empty(time.Now().Add(tooLong))
	})
}
