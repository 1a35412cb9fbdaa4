package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// A deployment is a server process and the load generator process that sends requests to it.
type deployment struct {
	server     *exec.Cmd
	addr       string
	serverDone chan error // receives the result when the server has ended
	loadDone   chan error // receives the result when the load generator has ended
	tally                 // the counts of the load generator; complete after a receive from loadDone
}

// start starts a server in the given role, with its files in dir, and then the load generator. The
// end of ctx kills both.
func start(ctx context.Context, role, dir string) (*deployment, error) {
	d := &deployment{serverDone: make(chan error, 1), loadDone: make(chan error, 1)}
	var err error
	if d.server, err = selfCommand(ctx, role, dirVar+"="+dir); err != nil {
		return nil, err
	}
	out, err := d.server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.server.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the server did not start: %w", errors.Join(err, d.server.Wait()))
	}
	d.addr = strings.TrimSpace(addr)
	go func() { d.serverDone <- d.server.Wait() }()

	if role == openServerRole {
		signal.Ignore(os.Interrupt) // the load generator inherits this, so ^C does not end it before the server
	}
	load, err := selfCommand(ctx, loadRole, addrVar+"="+d.addr)
	if err != nil {
		d.kill()
		return nil, err
	}
	if role == openServerRole {
		load.Env = append(load.Env, lightLoadVar+"=1")
	}
	go func() {
		report, err := load.Output()
		if err == nil {
			err = json.Unmarshal(report, &d.tally)
		}
		d.loadDone <- err
	}()
	return d, nil
}

func (d *deployment) terminate() error { return d.server.Process.Signal(syscall.SIGTERM) }

func (d *deployment) kill() { d.server.Process.Kill() }

// selfCommand returns a command that runs this program again, in the given role.
func selfCommand(ctx context.Context, role string, env ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(append(os.Environ(), roleVar+"="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}
