package lspconn

import (
	"errors"
	"io"
)

// A pen is what one holds who writes to the server. Only whole messages are written under it, so they never interleave,
// and none is begun after exit.
type pen struct {
	free    chan struct{} // holds a token while nobody has the pen
	w       io.WriteCloser
	retired bool // kept by the token
}

var errRetired = errors.New("nothing is written after exit")

func newPen(w io.WriteCloser) *pen {
	p := &pen{free: make(chan struct{}, 1), w: w}
	p.free <- struct{}{}
	return p
}

// write writes whole messages. It waits for the pen, and for the server to read; closing the pipe ends both.
func (p *pen) write(frames []byte) error { return p.hold(frames, false) }

// retire writes the last message.
func (p *pen) retire(last []byte) error { return p.hold(last, true) }

// hold takes the pen once: between a last message and the end of writing nobody else may get it.
func (p *pen) hold(frames []byte, last bool) error {
	<-p.free
	defer func() { p.free <- struct{}{} }()
	if p.retired {
		return errRetired
	}
	_, err := p.w.Write(frames)
	p.retired = last || err != nil // what follows part of a message would be taken for the rest of it
	return err
}
