//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	main "github.com/swansong-go/swansong/launcher/cmd/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// The report of a process that was forced is shown below its event, indented.
func TestEvents_ShowWhatForcedProcessStillWaitedFor(t *testing.T) {
	s := newSite(t, "state_dir: STATE\nprocess_groups:\n  - {name: web, command: RUNNER, args: [--process-id, '{id}', --behavior, hang, --initial-work, '0'], "+
		"shutdown: {grace_period: 100ms, max_duration: 100ms, sigterm_timeout: 0s}}\n")
	d := s.startReady()
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
	reports := make(chan string, 100) // there is room for the reports of all 40 rounds below, so the goroutine never waits
	go func() {
		defer close(reports)
		for more := lines.Scan(); more; {
			if !strings.Contains(lines.Text(), " FORCED ") {
				more = lines.Scan()
				continue
			}
			var below strings.Builder
			for more = lines.Scan(); more && strings.HasPrefix(lines.Text(), "    "); more = lines.Scan() {
				below.WriteString(lines.Text() + "\n")
			}
			reports <- below.String()
		}
	}()
	// The launcher may publish the first events before the command events has connected. On a busy
	// machine, a process may also be forced before its drain waits for anything, and its report
	// then says something else. So repeat until one report is as expected.
	for range 40 {
		s.mustRun("stop", "web-1", "--wait")
		// The goroutine above has read a report only when it reads a line that does not belong to
		// it. The restart causes events, which are printed after the report.
		s.mustRun("restart", "web", "--wait")
		select {
		case text := <-reports:
			if strings.HasPrefix(text, "    waits for something that never happens\n") && strings.Contains(text, "testrunner.(*runner).drainAll\n            ") {
				d.stop()
				return
			}
			t.Logf("below the event:\n%s", text)
		default:
		}
	}
	t.Error("no event of a forced process has a report of what it waited for, with its stack, below it")
	d.stop()
}

// In JSON, an event that is a transition has the keys from and to, and any other event has neither.
// A message that contains the text of such a key is not changed.
func TestPrintJSON_EventHasStatesOnlyIfItIsTransition(t *testing.T) {
	const text = `"from": "PROCESS_STATE_UNSPECIFIED", `
	for _, c := range []struct {
		event    *pb.Event
		from, to any
	}{
		{&pb.Event{Kind: "restart", Message: text}, nil, nil},
		{&pb.Event{Kind: "transition", Message: text, To: pb.ProcessState_SPAWNING}, nil, "SPAWNING"},
		{&pb.Event{Kind: "transition", Message: text, From: pb.ProcessState_SPAWNING, To: pb.ProcessState_READY}, "SPAWNING", "READY"},
	} {
		for _, indent := range []bool{false, true} {
			var out bytes.Buffer
			if err := main.PrintJSON(&out, c.event, indent); err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%s: %v", out.Bytes(), err)
			}
			testkit.Equal(t, "from", got["from"], c.from)
			testkit.Equal(t, "to", got["to"], c.to)
			testkit.Equal(t, "message", got["message"], any(text))
			testkit.Equal(t, "missed", got["missed"], any(0.0))
		}
	}
}
