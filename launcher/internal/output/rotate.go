package output

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// checkInterval is how often the writer checks whether its file was removed, renamed or truncated,
// as logrotate does. So after a rename, at most the lines of one second still go to the renamed
// file.
const checkInterval = time.Second

// prepare returns the writer for the next n bytes. It opens or rotates the file if necessary.
func (f *File) prepare(n int) (io.Writer, error) {
	if f.out != nil {
		return f.out, nil
	}
	f.checkFile()
	if f.file == nil {
		if err := f.openOrCreate(); err != nil {
			return nil, err
		}
	}
	if f.size > 0 && f.size+int64(n) > f.maxSize {
		f.rotate()
		if err := f.openOrCreate(); err != nil {
			return nil, err
		}
	}
	return f.file, nil
}

// checkFile closes the file if another program has removed or renamed it, because further lines
// would not be found at path. It updates the recorded size of the file, because another program can
// have truncated it.
func (f *File) checkFile() {
	now := f.now()
	if f.file == nil || now.Sub(f.checkedAt) < checkInterval {
		return
	}
	f.checkedAt = now
	opened, err := f.file.Stat()
	if err != nil {
		return
	}
	switch atPath, err := os.Stat(f.path); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(opened, atPath):
		f.file.Close()
		f.file = nil
	case opened.Mode().IsRegular():
		f.size = opened.Size()
	}
}

// openOrCreate opens the file, and makes its directory if that is missing. It tries to open the
// file first, because making a directory takes several system calls, and the directory is rarely
// missing.
func (f *File) openOrCreate() error {
	err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(f.path), 0o700); err == nil {
			err = f.open()
		}
	}
	return err
}

// open opens the file to append to it, so that lines of an earlier launcher stay. Its size counts
// towards the limit.
func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	f.file, f.size = file, info.Size()
	return nil
}

// rotate closes the file and renames it to path.1, path.1 to path.2, and so on. The oldest is
// removed. Errors are ignored: what cannot be renamed is overwritten or grows, which is better than
// to lose the lines that follow.
func (f *File) rotate() {
	f.file.Close()
	f.file = nil
	name := func(n int) string { return rotatedPath(f.path, n) }
	os.Remove(name(f.maxFiles))
	for n := f.maxFiles - 1; n >= 1; n-- {
		os.Rename(name(n), name(n+1))
	}
	if f.maxFiles > 0 {
		os.Rename(f.path, name(1))
	} else {
		os.Remove(f.path)
	}
	f.size = 0
}

// rotatedPath returns the path of the file that was rotated n times, from 1.
func rotatedPath(path string, n int) string { return path + "." + strconv.Itoa(n) }

// Remove removes a closed log file and its rotated files. It ignores errors, because a file that
// cannot be removed does no harm other than to take space.
func Remove(path string, maxFiles int) {
	for n := maxFiles; n >= 1; n-- {
		os.Remove(rotatedPath(path, n))
	}
	os.Remove(path)
}
