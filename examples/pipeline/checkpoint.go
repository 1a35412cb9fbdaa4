package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A checkpoint says that the lines of the input up to a place are in the output up to a length, all of them and no
// others. It is saved in one step, see replace. If the power fails, an older one may be found: that is as true.
type checkpoint struct {
	place
	Rejected int64  `json:"rejected"`
	Length   int64  `json:"length"` // of the output, in bytes
	Head     string `json:"head"`   // hash of the input's first bytes, to tell it from another
}

// head returns the hash of the first 4096 bytes of the input, or of as many as are dealt with: more may be appended.
func head(in *input, dealtWith int64) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, io.NewSectionReader(in, 0, min(dealtWith, 4096)))
	return hex.EncodeToString(h.Sum(nil)), err
}

// loadCheckpoint returns the checkpoint in a file, and false if there is no such file.
func loadCheckpoint(name string) (c checkpoint, found bool, err error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(&c)
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("something follows it")
	}
	if err == nil && (c.Offset < c.Lines || c.Lines < c.Rejected || c.Rejected < 0 || c.Length < c.Lines || c.Head == "") {
		err = errors.New("its numbers cannot be")
	}
	if err != nil {
		return c, true, fmt.Errorf("%s is not a checkpoint (%v)", name, err)
	}
	return c, true, nil
}

// An output is the file that lines are appended to, and its checkpoint.
type output struct {
	file       *os.File
	in         *input
	checkpoint string // its file; unused where the input is a stream
	at         checkpoint
	cut        int64 // how many bytes it had beyond its checkpoint
}

// openOutput opens an output, made if necessary, and cuts it to the length of its checkpoint.
func openOutput(name string, in *input) (_ *output, err error) {
	o := &output{in: in, checkpoint: name + ".checkpoint"}
	o.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := o.resume(); err != nil {
		o.file.Close()
		return nil, err
	}
	return o, nil
}

func (o *output) resume() error {
	c, found, err := loadCheckpoint(o.checkpoint)
	anew := fmt.Sprintf("to begin anew, remove %s and %s", o.file.Name(), o.checkpoint)
	if err != nil {
		return fmt.Errorf("%w; %s", err, anew)
	}
	info, err := o.file.Stat()
	if err != nil {
		return err
	}
	switch {
	case found && o.in.stream:
		return fmt.Errorf("%s belongs to an input that is a file, and this one is not; choose another -out", o.file.Name())
	case !found && info.Size() > 0:
		return fmt.Errorf("%s is not empty and has no %s, so it is not ours to write to; remove it, or choose another -out", o.file.Name(), o.checkpoint)
	case !found:
		return o.save() // before the first line is written, so that we know the output for ours
	case info.Size() < c.Length:
		return fmt.Errorf("%s has only %d of the %d bytes that %s knows of; %s", o.file.Name(), info.Size(), c.Length, o.checkpoint, anew)
	}
	if err := sameInput(o.in, c); err != nil {
		return fmt.Errorf("%s is not the input that %s was saved for: %w; bring that one back, or %s", o.in.name, o.checkpoint, err, anew)
	}
	o.at, o.cut = c, info.Size()-c.Length
	if err := o.file.Truncate(c.Length); err != nil {
		return err
	}
	if _, err := o.file.Seek(c.Length, io.SeekStart); err != nil {
		return err
	}
	_, err = o.in.Seek(c.Offset, io.SeekStart)
	return err
}

// sameInput returns an error if in cannot be the input that c was saved for, or more of it.
func sameInput(in *input, c checkpoint) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if info.Size() < c.Offset {
		return fmt.Errorf("it has %d bytes, and %d were dealt with", info.Size(), c.Offset)
	}
	switch sum, err := head(in, c.Offset); {
	case err != nil:
		return err
	case sum != c.Head:
		return errors.New("it begins differently")
	}
	if c.Offset > 0 && c.Offset < info.Size() {
		last := make([]byte, 1)
		if _, err := in.ReadAt(last, c.Offset-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			return fmt.Errorf("line %d, the last one, has grown since it was dealt with", c.Lines)
		}
	}
	return nil
}

// done reports whether all of the input is in the output, as far as a checkpoint tells.
func (o *output) done() bool {
	info, err := o.in.Stat()
	return err == nil && o.at.Offset > 0 && o.at.Offset == info.Size()
}

// append writes the line that the line of the input before end has become.
func (o *output) append(r result, end place) error {
	n, err := io.WriteString(o.file, r.text)
	if err != nil {
		return err
	}
	o.at.place = end
	o.at.Length += int64(n)
	if r.rejected {
		o.at.Rejected++
	}
	return nil
}

// save saves a checkpoint of what was written. The output must be on the disk before it.
func (o *output) save() (err error) {
	if err := o.file.Sync(); err != nil || o.in.stream {
		return err
	}
	if o.at.Head, err = head(o.in, o.at.Offset); err != nil {
		return err
	}
	return replace(o.checkpoint, func(w io.Writer) error { return json.NewEncoder(w).Encode(o.at) })
}
