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

// GroupOf returns the gid of the group of a file, and -1 if it is unknown.
func GroupOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Gid)
	}
	return -1
}
