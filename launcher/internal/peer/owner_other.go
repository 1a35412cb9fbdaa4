//go:build !unix

package peer

import "io/fs"

// OwnerOf returns -1: this system has no numeric owners of files.
func OwnerOf(fs.FileInfo) int { return -1 }

// GroupOf returns -1: this system has no numeric groups of files.
func GroupOf(fs.FileInfo) int { return -1 }
