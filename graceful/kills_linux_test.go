package graceful_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killsVar is the environment variable with the number of programs that
// TestRun_ProgramSavesItsDataOrSaysWhyNot kills. `make bench` sets it.
const killsVar = "GRACEFUL_KILLS"

// The programs of examples/flush run on a terminal, or in a pipeline whose reader ends. Each
// program receives one to four signals at random times between its start and the end of its drain,
// or its terminal closes. In the end, either the program has saved the data that it has collected,
// or its exit code is not 0 and the terminal, if it is open, shows the reason. No program is killed
// by a signal. A program that receives only one signal always saves its data.
func TestRun_ProgramSavesItsDataOrSaysWhyNot(t *testing.T) {
	kills := 40
	if testing.Short() {
		kills = 12
	}
	if n, err := strconv.Atoi(os.Getenv(killsVar)); err == nil {
		kills = n
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./...")
	build.Dir = filepath.Join("..", "examples", "flush")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build of examples/flush: %v\n%s", err, out)
	}
	seed := rand.Uint64()
	dice := rand.New(rand.NewPCG(seed, 0))
	ends := map[string]int{}
	for i := range kills {
		name := []string{"service", "consumer", "batch", "actor"}[i%4]
		how := []string{"terminal", "pipeline", "hangup"}[dice.IntN(3)]
		program, dir := filepath.Join(bin, name), t.TempDir()
		saved, status := filepath.Join(dir, "saved"), filepath.Join(dir, "status")
		command := exec.Command(program, "-out", saved)
		if how == "pipeline" {
			script := `{ trap : INT TERM HUP; "$0" -out "$1"; echo "exit status $?" >"$2"; } 2>&1 | cat`
			command = exec.Command("sh", "-c", script, program, saved, status)
		}
		tty := startCommandOnTerminal(t, command, "", 80)
		tty.readUntil("ready")
		repeats := dice.IntN(4)
		// The first signal comes within this time: while the program starts, or later.
		within := []time.Duration{15 * time.Millisecond, 500 * time.Millisecond}[dice.IntN(2)]
		for k := range 1 + repeats {
			if k > 0 {
				within = 15 * time.Millisecond // a drain takes up to 20 ms
			}
			time.Sleep(time.Duration(dice.Int64N(int64(within))))
			switch {
			case how == "hangup" && k == 0:
				tty.master.Close()
			case how == "pipeline" || how == "terminal" && dice.IntN(2) == 0:
				tty.master.WriteString("\x03") // this write fails if the program has ended
			default:
				tty.cmd.Process.Signal(syscall.SIGTERM) // this call fails if the program has ended
			}
		}
		if how != "hangup" {
			<-tty.over
		}
		tty.cmd.Wait()
		end := tty.cmd.ProcessState.String()
		if how == "pipeline" {
			b, _ := os.ReadFile(status)
			end = strings.TrimSpace(string(b))
		}
		ends[end]++
		b, _ := os.ReadFile(saved)
		isSaved := regexp.MustCompile(`^saved \d+\n$`).Match(b)
		ok := false
		switch end {
		case "exit status 0":
			ok = isSaved
		case "exit status 1", "exit status 2", "exit status 3":
			ok = repeats > 0 || how == "hangup"
			if how == "terminal" && !strings.Contains(tty.screen(), "graceful: ") && !strings.Contains(tty.screen(), "not saved") {
				ok = false // the program has not printed why it failed
			}
		}
		if !ok {
			t.Errorf("seed %d, kill %d: %s, %s, %d repeats: %s\nsaved: %q\nprinted: %q", seed, i, name, how, repeats, end, b, tty.screen())
		}
	}
	t.Logf("%d kills: %v", kills, ends)
}
