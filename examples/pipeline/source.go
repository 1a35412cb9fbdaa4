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

// An input is a file, which can be read again from any line, or a stream, which cannot.
type input struct {
	*os.File
	name   string
	stream bool
}

func openInput(ctx context.Context, name string) (*input, error) {
	if name == "-" {
		return &input{os.Stdin, "standard input", true}, nil
	}
	// A FIFO opens when somebody writes to it, and os.Open does not know of ctx.
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

// A place is how far the input is dealt with: the end of a line.
type place struct {
	Offset int64 `json:"offset"` // in bytes
	Lines  int64 `json:"lines"`
}

// A line is one order.
type line struct {
	text string // without its end
	end  place
	cut  bool // the stop of a stream came in the middle of it
}

// lines returns the lines of r, which begins at a place of the input. It calls ended when r is at its end. A line may be
// as long as memory allows, for no byte of the input is to be lost.
//
// A Reader that is stopped says io.EOF, and the half line before it must not pass for a line. Through a Reader we read
// streams, where it cannot be read again either, so it is delivered and marked. What a file holds after the last line
// that was written is read again next time.
func lines(r io.Reader, at place, ended func()) iter.Seq2[line, error] {
	stream, isStream := r.(*ctxshutdown.Reader)
	return func(yield func(line, error) bool) {
		for in := bufio.NewReaderSize(r, 64<<10); ; {
			text, err := in.ReadString('\n')
			whole := err == nil || err == io.EOF && !(isStream && stream.Stopped())
			if text != "" && (whole || isStream) {
				at.Offset += int64(len(text))
				at.Lines++
				text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
				if !yield(line{text, at, !whole}, nil) {
					return
				}
			}
			switch {
			case err == io.EOF:
				if whole {
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

// makeDemo writes an input to try the program with, unless it is there already.
func makeDemo(name string, say func(string, ...any)) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	say("writing %d demo orders to %s", demoLines, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	return replace(name, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		for i := range demoLines {
			if i%1000 == 999 {
				fmt.Fprintf(b, "order-%d,a lot\n", i+1) // for the rejects
				continue
			}
			fmt.Fprintf(b, "order-%d,%d\n", i+1, i*7919%100_000)
		}
		return b.Flush()
	})
}

// replace gives a file new contents: all of them or, whatever happens, none.
func replace(name string, write func(io.Writer) error) error {
	f, err := os.Create(name + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	// Else the new name could reach the disk before what it stands for.
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name)
}
