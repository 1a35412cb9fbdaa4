//go:build !unix

package listeners

import (
	"errors"
	"net"
	"os"
)

func stopListening(*os.File) {}

func fileOf(net.Listener) (*os.File, error) {
	return nil, errors.New("listeners cannot be inherited on this system; have the processes listen on {socket}")
}
