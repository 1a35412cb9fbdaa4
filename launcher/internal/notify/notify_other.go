//go:build !linux

package notify

import (
	"errors"
	"os"
)

// A Socket receives the messages of one process. It exists on Linux only, where the kernel says
// which process has sent a message.
type Socket struct{}

// Listen fails, because sd_notify(3) messages can be received on Linux only.
func Listen(string, *os.File, Gate, func(pid int) bool, func(Message)) (*Socket, error) {
	return nil, errors.New("notify: sd_notify(3) messages can be received on Linux only")
}

// Serve returns at once on this system.
func (s *Socket) Serve() {}

// Drain returns at once on this system.
func (s *Socket) Drain() {}

// File returns an error on this system.
func (s *Socket) File() (*os.File, error) { return nil, errors.ErrUnsupported }

// Close does nothing on this system.
func (s *Socket) Close() {}
