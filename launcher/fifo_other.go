//go:build !unix

package launcher

import (
	"errors"
	"os"
)

func makeFIFO(string) (ours, theirs *os.File, err error) { return nil, nil, errors.ErrUnsupported }

func openFIFO(string) (*os.File, error) { return nil, errors.ErrUnsupported }
