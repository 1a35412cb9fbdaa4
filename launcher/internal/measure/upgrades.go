//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/launcher/internal/load"
)

// upgrades upgrades the launcher command again and again under load, every second time in the
// middle of a roll, and prints how many requests are lost.
func upgrades(w io.Writer, times int) error {
	dir, done, err := shortDir()
	if err != nil {
		return err
	}
	defer done()
	u := upgrading{dir: dir, launcher: filepath.Join(dir, "launcher")}
	if out, err := exec.Command("go", "build", "-o", u.launcher, "github.com/swansong-go/swansong/launcher/cmd/launcher").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	stop, err := u.start()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var l load.Ledger
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() {
			l.Ask(ctx, &load.Client{KeepAlive: n%2 == 0, Dial: func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "app"))
			}}, nil)
		})
	}
	took, err := u.upgrade(times)
	cancel()
	clients.Wait()
	if stopped := stop(); err == nil {
		err = stopped
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, &u.log)
	}
	requests, longest := l.Sent()
	fmt.Fprintf(w, "\n## Upgrades in place\n\nThe command launcher, with a group of 3, is upgraded %d times by `launcher upgrade` under the load of four clients, every second time\n"+
		"in the middle of a roll.\n\n| | target | measured |\n| --- | ---: | ---: |\n", times)
	figures.Row(w, "requests, and lost ones", "0 lost", fmt.Sprintf("%d, %d lost", requests, len(l.Failures())))
	mustBeNone("requests lost during upgrades", len(l.Failures()))
	mustBeNone("processes that did not end cleanly", u.unclean())
	figures.Row(w, "processes that did not end cleanly", "0", fmt.Sprint(u.unclean()))
	figures.Row(w, "rolls that upgrades have interrupted, and completed ones", "–", fmt.Sprintf("%d, %d", u.rolls, strings.Count(u.log.String(), "msg=roll-done")))
	figures.Row(w, "the command upgrade, median (largest); the longest wait of a client", "–", fmt.Sprintf("%s; %v", spread(took), round(longest)))
	return nil
}

// An upgrading is the launcher that the measurement upgrades again and again.
type upgrading struct {
	dir, launcher string
	log           bytes.Buffer // the log of the launcher; complete when the launcher has ended
	rolls         int
}

// start starts the launcher. The function that it returns stops it.
func (u *upgrading) start() (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(u.dir, "launcher.yaml")
	text := fmt.Sprintf(`
state_dir: %s/s
process_groups:
  - name: web
    command: %s
    args: [--process-id, "{id}", --initial-work, "0", --work-duration, 1ms]
    env: {%s: testrunner}
    desired_instances: 3
    listeners: [{name: app, network: unix, address: %s/app}]
`, u.dir, self, role, u.dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(u.launcher, "run", "-f", file)
	cmd.Stderr = &u.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	}
	if err := u.settle(); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// run runs a command that asks the launcher.
func (u *upgrading) run(args ...string) ([]byte, error) {
	out, err := exec.Command(u.launcher, append(args, "--dir", filepath.Join(u.dir, "s"))...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("launcher %s: %w: %s", args[0], err, out)
	}
	return out, nil
}

// upgrade upgrades the launcher the given number of times, and returns how long each upgrade took.
func (u *upgrading) upgrade(times int) (took []time.Duration, err error) {
	for n := range times {
		if n%2 == 1 {
			if _, err := u.run("restart", "web"); err != nil {
				return nil, err
			}
			u.rolls++
			// Begin each upgrade at another point of the roll.
			time.Sleep(time.Duration(n%7) * 20 * time.Millisecond)
		}
		began := time.Now()
		if _, err := u.run("upgrade"); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		if n%2 == 1 {
			if err := u.settle(); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}

// settle waits until the group is healthy and its roll is over.
func (u *upgrading) settle() (err error) {
	for late := time.Now().Add(time.Minute); time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
		var text []byte
		if text, err = u.run("status", "--json"); err != nil {
			continue
		}
		var s struct {
			Groups []struct {
				Healthy bool
				Ready   int
				Roll    any
			}
		}
		if err = json.Unmarshal(text, &s); err != nil {
			return err
		}
		if g := s.Groups[0]; g.Healthy && g.Roll == nil && g.Ready == 3 {
			return nil
		}
		err = fmt.Errorf("after a minute the group is not healthy, or its roll is not over: %s", text)
	}
	return err
}

// unclean returns the number of processes that did not end with the outcome CLEAN.
func (u *upgrading) unclean() (n int) {
	for line := range strings.Lines(u.log.String()) {
		if strings.Contains(line, "outcome=") && !strings.Contains(line, "outcome=CLEAN") {
			n++
		}
	}
	return n
}
