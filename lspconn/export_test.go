package lspconn

import (
	"context"
	"io"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// Link is the process of a connection, for tests that put something else in its place.
type Link = link

// StartOver is Start with something else than a process.
func StartOver(ctx context.Context, server Server, l Link) (*Conn, error) {
	return start(ctx, server, func(Server) (link, error) { return l, nil }, nil)
}

// StartByWalk is Start where no cgroup can be made: what the server starts is found by walks through /proc.
func StartByWalk(ctx context.Context, server Server) (*Conn, error) {
	return start(ctx, server, func(s Server) (link, error) {
		return spawnBy(proc.Spec{Args: s.Command, Dir: s.Dir, Env: s.Env, NoCgroup: true})
	}, nil)
}

// Frames returns a function that reads one message after the other.
func Frames(r io.Reader) (next func() ([]byte, error)) { return newFrameReader(r).next }

// ReadFrames reads messages until something is wrong, and returns that.
func ReadFrames(r io.Reader) (bodies []string, err error) {
	for in := newFrameReader(r); ; {
		body, err := in.next()
		if err != nil {
			return bodies, err
		}
		bodies = append(bodies, string(body))
	}
}

// Frame returns a message as it is written.
var Frame = frame

// WaitOf returns how long a policy waits before the nth restart.
func WaitOf(r Restart, n int) (time.Duration, bool) { return r.wait(n) }

// StartsOver has a Manager start something else than processes.
func StartsOver(m *Manager, spawn func(Server) (Link, error)) { m.spawn = spawn }

// Decode reads a message.
func Decode(body []byte) error {
	_, err := decode(body)
	return err
}
