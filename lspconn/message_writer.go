package lspconn

import (
	"errors"
	"io"
)

// A messageWriter writes messages to the server's stdin. It writes whole messages one after
// another, so messages of different goroutines never interleave. It writes nothing after the exit
// notification.
type messageWriter struct {
	lock   chan struct{} // contains one token while no goroutine is writing
	w      io.WriteCloser
	trace  *tracer // writes each message to Server.Trace, too; nil if that is not set
	closed bool    // no message may be written any more; used only by a goroutine that has taken the token from lock
}

var errAfterExit = errors.New("message not sent: the exit notification has already been sent")

func newMessageWriter(w io.WriteCloser) *messageWriter {
	mw := &messageWriter{lock: make(chan struct{}, 1), w: w}
	mw.lock <- struct{}{}
	return mw
}

// write writes whole messages. It blocks while another goroutine is writing and while the server
// does not read. To end a blocked write, close the pipe.
func (mw *messageWriter) write(frames []byte) error { return mw.writeLocked(frames, false) }

// writeLast writes a message after which every write fails.
func (mw *messageWriter) writeLast(frame []byte) error { return mw.writeLocked(frame, true) }

// writeLocked writes frames while it holds the lock. If this is the last write, it sets closed
// before it releases the lock, so that no other goroutine can write after the last message.
func (mw *messageWriter) writeLocked(frames []byte, last bool) error {
	<-mw.lock
	defer func() { mw.lock <- struct{}{} }()
	if mw.closed {
		return errAfterExit
	}
	mw.trace.sending(frames)
	_, err := mw.w.Write(frames)
	// A failed write may have written part of a message. The server would take the next message for
	// the rest of that one, so nothing more is written.
	mw.closed = last || err != nil
	return err
}
