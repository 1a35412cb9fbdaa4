package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
)

func init() {
	// The role "moves" enters the cgroup args[0] and starts a process in the same cgroup. Then it
	// enables a controller, which moves both into a cgroup below, and prints the pid of the
	// process.
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
		proc.EnableCPU() // an error says that this machine does not have the controller, or that a process stays
		fmt.Println(beside.Pid())
		forever()
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
