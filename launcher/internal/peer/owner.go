package peer

import (
	"io/fs"
	"os"
)

// OfAnother reports whether a file is known to be another user's.
func OfAnother(info fs.FileInfo) bool {
	owner := OwnerOf(info)
	return owner >= 0 && owner != os.Geteuid()
}
