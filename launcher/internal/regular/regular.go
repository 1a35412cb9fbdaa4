// Package regular opens files without waiting for another program.
package regular

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a regular file for reading. For any other file, such as a pipe, it returns an error,
// which says that the file is not regular. The error ends with the text advice, which says what to
// do instead.
//
// To open or read a pipe can wait without a limit for a program that writes to it, and no context
// ends the wait. Open looks at the file before it opens it, because to open a pipe would end the
// wait of the program that writes to it, and then lose what that program writes. Directories are
// opened: the error of reading them is clear. So is the null device, which is an empty file.
func Open(name, advice string) (*os.File, error) {
	info, err := os.Stat(name)
	if err == nil {
		err = check(name, info, advice)
	}
	if err != nil {
		return nil, err
	}
	return open(name, advice)
}

// open opens the file and checks it again, because it may have become a pipe since Open has checked
// it. With O_NONBLOCK, opening a pipe does not wait for a writer. O_NONBLOCK has no effect on
// regular files, nor on Windows.
func open(name, advice string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = check(name, info, advice)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// check returns an error if the file is neither regular nor one of the exceptions of Open.
func check(name string, info fs.FileInfo, advice string) error {
	if info.Mode().IsRegular() || info.IsDir() {
		return nil
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return nil
	}
	return &fs.PathError{Op: "open", Path: name, Err: errors.New("it is no regular file" + advice)}
}
