package peer

import (
	"io/fs"
	"os"
)

// OfAnother reports whether a file is known to belong to another user. An owner that is unknown, as
// on Windows, does not count as another user: otherwise the launcher would refuse every directory
// there.
func OfAnother(info fs.FileInfo) bool {
	owner := OwnerOf(info)
	return owner >= 0 && owner != os.Geteuid()
}
