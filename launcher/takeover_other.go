//go:build !linux

package launcher

import (
	"os"

	"github.com/swansong-go/swansong/internal/proc"
)

// takeSocket finds nothing: nobody is kept.
func takeSocket(proc.Kept, uint64) (*os.File, error) { return nil, nil }

func inodeOf(*os.File) uint64 { return 0 }
