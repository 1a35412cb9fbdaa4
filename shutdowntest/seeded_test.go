package shutdowntest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/shutdowntest"
)

type scenario = func(t *testing.T, s *ctxshutdown.Swansong) func()

// If the environment contains seededVar, the test binary runs a test that fails.
const seededVar = "SHUTDOWNTEST_SEEDED"

// Each of these scenarios has a bug. Run must find the bug, describe it, and print a command that
// finds it again.
var seeded = []struct {
	name     string
	scenario scenario
	// The output of the test must match these regular expressions, and must not match expressions
	// that begin with an exclamation mark.
	says []string
}{
	{
		"a pool that takes a job before it acquires a guard", poolScenario(workThatTakesAndThenAsks, submitWithoutAGuard),
		[]string{`\d of \d accepted jobs are done`, `the stop was made before a guard was acquired, at pool_test\.go:\d+ in shutdowntest_test\.workThatTakesAndThenAsks`},
	},
	{
		"a pool that releases before the job is done", poolScenario(workThatReleasesTooEarly, (*pool).submit),
		[]string{`\d of \d accepted jobs are done`, `the stop was made`},
	},
	{
		"a pool whose workers end at the stop and leave jobs undone", poolScenario(workThatEndsWithTheStop, (*pool).submit),
		[]string{`the scenario has not returned within 10s of the stop: \d guards?: .*pool_test\.go:\d+ for 10s`, `pool\)\.submit`, `!never end`},
	},
	{
		"a pool that does not release a guard", poolScenario(workThatForgetsAGuard, (*pool).submit),
		[]string{`not drained within 10s of the stop: 2 guards: \(unnamed\) ×2 at pool_test\.go:\d+ for 10`, `the stop was made at the end of the scenario`},
	},
	{
		"a pool whose workers never end", poolScenario(workThatNeverEnds, (*pool).submit),
		[]string{`these goroutines never end; the stop was made at the end of the scenario`, `shutdowntest_test\.workThatNeverEnds`},
	},
	{
		"a handler that stores with the soft context", handlerScenario(handleThatStoresOnTheSoftTier),
		[]string{`an order got 500: ctxshutdown: shut down`, `the stop was made .*handler_test\.go:\d+ in shutdowntest_test\.\(\*orders\)\.handle;`},
	},
	{
		"a handler that ships without a guard", handlerScenario(handleThatShipsWithoutAGuard),
		[]string{`\d of \d orders are shipped`},
	},
	{
		"a pipeline that drops the numbers it has read", pipelineScenario(squareThatDropsWhatItHas),
		[]string{`the sum is \d+, and what has been read adds up to \d+`},
	},
	{
		"a pipeline whose middle stage ends at the stop", pipelineScenario(squareThatEndsWithTheStop),
		[]string{`not drained within 10s of the stop: 1 guard`, `chan send`},
	},
	{
		"a scenario that fails (for its own reason)", func(t *testing.T, s *ctxshutdown.Swansong) func() {
			s.Guard().Release()
			if s.Err() != nil {
				t.Fatal("the scenario fails")
			}
			return nil
		},
		[]string{`the scenario fails`, `the stop was made before a guard was acquired, at seeded_test\.go:\d+`, `!not returned`},
	},
	{
		"a scenario that fails (for its own reason) at one moment", func(t *testing.T, s *ctxshutdown.Swansong) func() {
			g := s.Guard()
			before := s.Err()
			g.Release()
			if before == nil && s.Err() != nil {
				t.Error("the stop came while the guard was held")
			}
			return nil
		},
		[]string{`the stop came while the guard was held`, `/stop=3`, `the stop was made before a guard was released, at seeded_test\.go:\d+`},
	},
	{
		"a drain that only Force can end", func(t *testing.T, s *ctxshutdown.Swansong) func() {
			s.Go(func(work context.Context) {
				<-work.Done()
				t.Log("cut short:", context.Cause(work))
			})
			return func() { t.Error("the check was called, although the scope has not drained") }
		},
		[]string{`not drained within 10s of the stop: 1 guard`, `cut short: shutdowntest: the drain took too long`, `!the check was called`},
	},
	{
		"a goroutine that ends too late after the drain", func(t *testing.T, s *ctxshutdown.Swansong) func() {
			s.Guard().Release()
			go func() {
				<-s.Completion().Done()
				time.Sleep(11 * time.Second)
			}()
			return nil
		},
		[]string{`these goroutines never end; the stop was made at the end of the scenario`, `time\.Sleep`},
	},
	{
		"a scenario that acquires a guard after the scope has drained", func(t *testing.T, s *ctxshutdown.Swansong) func() {
			s.Guard().Release()
			if s.Err() != nil {
				time.Sleep(time.Second) // by now the scope has drained
				s.Guard()
			}
			return nil
		},
		[]string{`not drained within 10s of the stop: 1 guard: \(unnamed\) ×1 at seeded_test\.go:\d+ for 9s`},
	},
	{
		"a check that never returns", func(t *testing.T, s *ctxshutdown.Swansong) func() {
			s.Guard().Release()
			return func() { select {} }
		},
		[]string{`these goroutines never end; the stop was made at the end of the scenario`, `seeded_test\.go`},
	},
	{
		"a scenario without guards", func(t *testing.T, s *ctxshutdown.Swansong) func() { return nil },
		[]string{`has acquired no guard.*derive the scopes of the code under test from s`},
	},
	{
		"a time limit that is negative", nil,
		[]string{`Within\(-1s\): must be positive`},
	},
}

func TestRun_FindsBugsPlantedInScenarios(t *testing.T) {
	if os.Getenv(seededVar) != "" {
		for _, bug := range seeded {
			t.Run(bug.name, func(t *testing.T) {
				var opts []shutdowntest.Option
				if bug.scenario == nil {
					bug.scenario = func(*testing.T, *ctxshutdown.Swansong) func() {
						panic("the scenario was called, although Within is invalid")
					}
					opts = append(opts, nil, shutdowntest.Within(-time.Second))
				}
				shutdowntest.Run(t, bug.scenario, opts...)
			})
		}
		return
	}
	for _, bug := range seeded {
		t.Run(bug.name, func(t *testing.T) {
			output := failing(t, "^TestRun_FindsBugsPlantedInScenarios$/^"+strings.ReplaceAll(regexp.QuoteMeta(bug.name), " ", "_")+"$")
			mustSay(t, output, bug.says)
			if n := strings.Count(output, "to run it alone:"); n > 1 {
				t.Errorf("%d runs fail, want that Run stops after the first failure:\n%s", n, output)
			}
			again := replay.FindStringSubmatch(output)
			if again == nil {
				return // this bug appears even if the scope is not stopped
			}
			alone := failing(t, again[1])
			mustSay(t, alone, bug.says)
			if got, want := replay.FindStringSubmatch(alone), again; got == nil || got[1] != want[1] {
				t.Errorf("when run alone, the scenario fails at another stop:\n%s", alone)
			}
			if n := strings.Count(alone, "=== RUN ") - strings.Count(again[1], "/") - 1; n != 0 {
				t.Errorf("when run alone, there are %d other runs:\n%s", n, alone)
			}
		})
	}
}

var replay = regexp.MustCompile(`go test -run '(.*)'`)

// failing runs a test of this test binary, checks that it fails, and returns its output.
func failing(t *testing.T, pattern string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", pattern, "-test.v", "-test.timeout", "1m")
	cmd.Env = append(os.Environ(), seededVar+"=1")
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || strings.Contains(string(out), "panic:") {
		t.Fatalf("-test.run %q: %v, want that it fails\n%s", pattern, err, out)
	}
	return string(out)
}

func mustSay(t *testing.T, output string, says []string) {
	t.Helper()
	for _, want := range says {
		if want, not := strings.CutPrefix(want, "!"); regexp.MustCompile(want).MatchString(output) == not {
			t.Errorf("whether the output matches %q is %v, want %v:\n%s", want, not, !not, output)
		}
	}
}
