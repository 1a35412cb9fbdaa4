package peer

import (
	"io/fs"
	"os"
)

// OfAnother reports whether a file is known to belong to another user.
func OfAnother(info fs.FileInfo) bool {
	owner := OwnerOf(info)
	return owner >= 0 && owner != os.Geteuid()
}
