//go:build !linux

package listeners

import (
	"os"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// takeSocket returns nil, because processes outlive their launcher only on Linux.
func takeSocket(proc.Adoptable, uint64) (*os.File, error) { return nil, nil }

// SocketsOf returns nil, because processes outlive their launcher only on Linux.
func SocketsOf([]proc.Adoptable) []statefile.Socket { return nil }

func inodeOf(*os.File) uint64 { return 0 }
