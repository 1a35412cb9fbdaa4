package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// A shop is a server and its clients, each a process of its own.
type shop struct {
	server *exec.Cmd
	addr   string
	ended  chan error // of the server
	seen   chan error // of the clients: tally is complete
	tally
}

// start starts a server in the given role, with its files in dir, and puts it under load until ctx ends.
func start(ctx context.Context, role, dir string) (*shop, error) {
	s := &shop{ended: make(chan error, 1), seen: make(chan error, 1)}
	var err error
	if s.server, err = itself(ctx, role, dirVar+"="+dir); err != nil {
		return nil, err
	}
	out, err := s.server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.server.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the server did not start: %w", errors.Join(err, s.server.Wait()))
	}
	s.addr = strings.TrimSpace(addr)
	go func() { s.ended <- s.server.Wait() }()

	load, err := itself(ctx, "load", addrVar+"="+s.addr)
	if err != nil {
		s.kill()
		return nil, err
	}
	if role == openRole {
		load.Env = append(load.Env, calmVar+"=1")
	}
	go func() {
		report, err := load.Output()
		if err == nil {
			err = json.Unmarshal(report, &s.tally)
		}
		s.seen <- err
	}()
	return s, nil
}

func (s *shop) terminate() error { return s.server.Process.Signal(syscall.SIGTERM) }

func (s *shop) kill() { s.server.Process.Kill() }

// itself prepares a process of this very program in another role.
func itself(ctx context.Context, role string, env ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(append(os.Environ(), roleVar+"="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}
