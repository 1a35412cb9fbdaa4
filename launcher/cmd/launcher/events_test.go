//go:build linux

package main_test

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
)

// The report of a process that was forced is shown below its event, indented.
func TestEvents_ShowReportOfForcedProcess(t *testing.T) {
	s := newSite(t, "state_dir: STATE\nprocess_groups:\n  - {name: web, command: RUNNER, args: [--process-id, '{id}', --behavior, hang, --initial-work, '0'], "+
		"shutdown: {grace_period: 100ms, max_duration: 100ms, sigterm_timeout: 0s}}\n")
	d := s.runs()
	cmd := exec.Command(command, "events", "-f", s.file())
	cmd.Env = s.environment()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	lines := bufio.NewScanner(out)
	forced := make(chan []string, 1)
	go func() {
		var below []string
		for lines.Scan() {
			if strings.Contains(lines.Text(), " FORCED ") {
				for lines.Scan() && strings.HasPrefix(lines.Text(), "    ") {
					below = append(below, lines.Text())
				}
				forced <- below
				return
			}
		}
		forced <- nil
	}()
	for {
		s.must("stop", "web-1", "--wait")
		s.must("restart", "web", "--wait") // further events show that the report has ended; the first ones may come before the command receives any
		select {
		case below := <-forced:
			text := strings.Join(below, "\n")
			if !strings.HasPrefix(text, "    waits for something that never happens\n") || !strings.Contains(text, "testrunner.(*runner).drainAll\n            ") {
				t.Errorf("below the event:\n%s", text)
			}
			d.stops()
			return
		default:
		}
	}
}
