//go:build unix

package peer

import (
	"io/fs"
	"syscall"
)

// OwnerOf returns the uid of the owner of a file, and -1 if it is unknown.
func OwnerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
