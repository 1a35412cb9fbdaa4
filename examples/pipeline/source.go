package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An input is a file or a stream. Only a file can be read again.
type input struct {
	*os.File
	name   string
	stream bool
}

func openInput(ctx context.Context, name string) (*input, error) {
	if name == "-" {
		return &input{os.Stdin, "standard input", true}, nil
	}
	// Opening a FIFO blocks until a process opens it for writing, and os.Open takes no context.
	// Call returns when ctx ends, although os.Open still blocks.
	f, err := ctxshutdown.Call(ctx, func(context.Context) (*os.File, error) { return os.Open(name) })
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &input{f, name, !info.Mode().IsRegular()}, nil
}

// A position is the end of a line in the input.
type position struct {
	Offset int64 `json:"offset"` // number of bytes up to the end of the line
	Lines  int64 `json:"lines"`  // number of lines up to and including this one
}

// A line is a line of the input, which contains one order.
type line struct {
	text    string // the line without its line end
	end     position
	partial bool // the program was stopped before it had read the complete line from a stream
}

// lines returns the lines of r, which starts at the given position of the input. It calls the
// function ended at the end of r. The length of a line is limited by memory only.
//
// A ctxshutdown.Reader returns io.EOF also when it is stopped. The bytes after the last line end
// are then only a part of a line. They come from a stream and cannot be read again, so lines
// returns them as a partial line. A file is read without a ctxshutdown.Reader, because the next run
// reads again what was not written.
func lines(r io.Reader, at position, ended func()) iter.Seq2[line, error] {
	stream, isStream := r.(*ctxshutdown.Reader)
	return func(yield func(line, error) bool) {
		for in := bufio.NewReaderSize(r, 64<<10); ; {
			text, err := in.ReadString('\n')
			complete := err == nil || err == io.EOF && !(isStream && stream.Stopped())
			if text != "" && (complete || isStream) {
				at.Offset += int64(len(text))
				at.Lines++
				text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
				if !yield(line{text, at, !complete}, nil) {
					return
				}
			}
			switch {
			case err == io.EOF:
				if complete {
					ended()
				}
				return
			case err != nil:
				yield(line{}, err)
				return
			}
		}
	}
}

const demoLines = 200_000

// createDemo creates a demo input, unless the file exists.
func createDemo(name string, logf func(string, ...any)) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	logf("writing %d demo orders to %s", demoLines, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	return replaceFile(name, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		for i := range demoLines {
			if i%1000 == 999 {
				fmt.Fprintf(b, "order-%d,a lot\n", i+1) // "a lot" is not a number, so the program rejects this line
				continue
			}
			fmt.Fprintf(b, "order-%d,%d\n", i+1, i*7919%100_000)
		}
		return b.Flush()
	})
}

// replaceFile replaces the contents of a file by what write writes. After a crash the file has
// either the old contents or all of the new contents.
func replaceFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	// Without the sync, the rename could reach the disk before the contents do.
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name)
}
