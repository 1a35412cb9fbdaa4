//go:build !linux && !darwin

package peer

import (
	"errors"
	"syscall"
)

func credentialsOf(syscall.Conn) (Info, error) {
	return Info{}, errors.New("peer: this system does not identify the process at the other end of a socket; the launcher needs Linux or macOS")
}
