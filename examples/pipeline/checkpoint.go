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

// A checkpoint records that the first Length bytes of the output contain exactly the results of the
// first Lines lines of the input. It is replaced atomically; see replaceFile. After a power failure
// the file may contain an older checkpoint, which is also correct.
type checkpoint struct {
	position
	Rejected int64  `json:"rejected"`
	Length   int64  `json:"length"` // length of the output in bytes
	Head     string `json:"head"`   // hash of the beginning of the input, to recognize the input
}

// hashHead returns the hash of the first 4096 bytes of the input. It hashes fewer bytes if fewer
// have been processed, because more may be appended to the input later.
func hashHead(in *input, processed int64) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, io.NewSectionReader(in, 0, min(processed, 4096)))
	return hex.EncodeToString(h.Sum(nil)), err
}

// loadCheckpoint returns the checkpoint in a file. found is false if the file does not exist.
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
		err = errors.New("unexpected data after the JSON object")
	}
	if err == nil && (c.Offset < c.Lines || c.Lines < c.Rejected || c.Rejected < 0 || c.Length < c.Lines || c.Head == "") {
		err = errors.New("the numbers in it contradict each other")
	}
	if err != nil {
		return c, true, fmt.Errorf("%s is not a valid checkpoint: %v", name, err)
	}
	return c, true, nil
}

// An output is the file that results are appended to, with its checkpoint.
type output struct {
	file       *os.File
	in         *input
	checkpoint string     // name of the checkpoint file; if the input is a stream, there is no such file
	current    checkpoint // the position up to which lines have been written, whether it has been saved or not
	truncated  int64      // number of bytes after the checkpoint that resume has removed
}

// openOutput opens an output file, or creates it, and resumes at its checkpoint.
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

// resume truncates the output to the length in its checkpoint and moves the input to the position
// in it. It returns an error if the output, the checkpoint and the input do not belong together.
func (o *output) resume() error {
	c, found, err := loadCheckpoint(o.checkpoint)
	startOver := fmt.Sprintf("remove %s and %s to start over", o.file.Name(), o.checkpoint)
	if err != nil {
		return fmt.Errorf("%w; %s", err, startOver)
	}
	info, err := o.file.Stat()
	if err != nil {
		return err
	}
	switch {
	case found && o.in.stream:
		return fmt.Errorf("%s has a checkpoint of an input file, and this input is a stream; choose another -out", o.file.Name())
	case !found && info.Size() > 0:
		return fmt.Errorf("%s is not empty and has no checkpoint %s; remove it or choose another -out", o.file.Name(), o.checkpoint)
	case !found:
		return o.save() // without a checkpoint, the next run would refuse the output
	case info.Size() < c.Length:
		return fmt.Errorf("%s has %d bytes, but its checkpoint %s records %d; %s", o.file.Name(), info.Size(), o.checkpoint, c.Length, startOver)
	}
	if err := checkSameInput(o.in, c); err != nil {
		return fmt.Errorf("%s is not the input that the checkpoint %s was saved for: %w; restore that input, or %s", o.in.name, o.checkpoint, err, startOver)
	}
	o.current, o.truncated = c, info.Size()-c.Length
	if err := o.file.Truncate(c.Length); err != nil {
		return err
	}
	if _, err := o.file.Seek(c.Length, io.SeekStart); err != nil {
		return err
	}
	_, err = o.in.Seek(c.Offset, io.SeekStart)
	return err
}

// checkSameInput returns an error if in is not the input that c was saved for. Lines may have been
// appended to it.
func checkSameInput(in *input, c checkpoint) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if info.Size() < c.Offset {
		return fmt.Errorf("the input has %d bytes, but %d bytes have been processed", info.Size(), c.Offset)
	}
	switch sum, err := hashHead(in, c.Offset); {
	case err != nil:
		return err
	case sum != c.Head:
		return errors.New("the beginning of the input differs")
	}
	if c.Offset > 0 && c.Offset < info.Size() {
		last := make([]byte, 1)
		if _, err := in.ReadAt(last, c.Offset-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			return fmt.Errorf("line %d, the last one that was processed, has been extended since", c.Lines)
		}
	}
	return nil
}

// isComplete reports whether all results of the input are in the output, according to the
// checkpoint.
func (o *output) isComplete() bool {
	info, err := o.in.Stat()
	return err == nil && o.current.Offset > 0 && o.current.Offset == info.Size()
}

// append writes the result of the line of the input that ends at end.
func (o *output) append(r result, end position) error {
	n, err := io.WriteString(o.file, r.text)
	if err != nil {
		return err
	}
	o.current.position = end
	o.current.Length += int64(n)
	if r.rejected {
		o.current.Rejected++
	}
	return nil
}

// save syncs the output and then saves a checkpoint of it. The order matters: a checkpoint must not
// reach the disk before the results that it records.
func (o *output) save() (err error) {
	if err := o.file.Sync(); err != nil || o.in.stream {
		return err
	}
	if o.current.Head, err = hashHead(o.in, o.current.Offset); err != nil {
		return err
	}
	return replaceFile(o.checkpoint, func(w io.Writer) error { return json.NewEncoder(w).Encode(o.current) })
}
