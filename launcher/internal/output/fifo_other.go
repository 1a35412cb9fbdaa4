//go:build !unix

package output

import (
	"errors"
	"os"
)

// MakeFIFO fails: this system has no named pipes.
func MakeFIFO(string) (r, w *os.File, err error) { return nil, nil, errors.ErrUnsupported }

// OpenFIFO fails: this system has no named pipes.
func OpenFIFO(string) (*os.File, error) { return nil, errors.ErrUnsupported }
