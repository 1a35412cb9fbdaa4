package shutdowntest_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/shutdowntest"
)

// If a scenario hangs on a mutex, Run prints its goroutines. The test runs such a scenario in
// another process, since only the end of that process ends the scenario.
func TestRun_PrintsGoroutinesOfScenarioThatHangsOnMutex(t *testing.T) {
	const hangs = "SHUTDOWNTEST_HANGS"
	if os.Getenv(hangs) != "" {
		shutdowntest.SetHangTimeout(10 * time.Millisecond)
		shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
			var mu sync.Mutex
			mu.Lock()
			s.Guard().Release()
			mu.Lock()
			return nil
		})
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRun_PrintsGoroutinesOfScenarioThatHangsOnMutex$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), hangs+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	reported := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		reported = reported || strings.HasPrefix(lines.Text(), "shutdowntest: TestRun_PrintsGoroutinesOfScenarioThatHangsOnMutex has run for 10ms; its clock may stand still")
		// The stack of the hanging goroutine names this file.
		if reported && strings.Contains(lines.Text(), "watch_test.go") {
			return
		}
	}
	t.Error("the hang was not reported")
}
