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

// A bug that ends on a mutex is told of while it hangs. It has a process of its own, since nothing but its end ends it.
func TestWatch(t *testing.T) {
	const hangs = "SHUTDOWNTEST_HANGS"
	if os.Getenv(hangs) != "" {
		shutdowntest.SetPatience(10 * time.Millisecond)
		shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
			var mu sync.Mutex
			mu.Lock()
			s.Guard().Release()
			mu.Lock()
			return nil
		})
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWatch$", "-test.timeout=1m")
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
	told := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		told = told || strings.HasPrefix(lines.Text(), "shutdowntest: TestWatch has run for 10ms, and its clock may stand still")
		if told && strings.Contains(lines.Text(), "watch_test.go") { // in the goroutine's trace
			return
		}
	}
	t.Error("nobody is told where the scenario hangs")
}
