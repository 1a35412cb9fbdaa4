//go:build unix

package peer

import (
	"io/fs"
	"syscall"
)

// OwnerOf returns whose a file is, -1 where nobody can know.
func OwnerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
