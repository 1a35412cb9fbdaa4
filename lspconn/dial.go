package lspconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/internal/panics"
)

var errNoStream = errors.New("the function returned no stream and no error")

// A dialled is a server's process that exchanges messages over the stream of Server.Dial instead of
// its stdin and stdout.
type dialled struct {
	serverProcess
	cancel context.CancelFunc // ends the context of Dial
	opened chan struct{}      // closed when Dial has returned
	err    error              // why there is no stream; set before opened is closed
	stream io.ReadWriteCloser // the stream that Dial has returned; set before opened is closed, unless err is set

	mu     sync.Mutex
	closed bool // Close was called; a stream that Dial returns after that is closed at once
}

// newDialled calls dial on a new goroutine. The context of dial ends when ctx ends or the process
// has exited.
func newDialled(ctx context.Context, p serverProcess, dial func(context.Context) (io.ReadWriteCloser, error)) *dialled {
	d := &dialled{serverProcess: p, opened: make(chan struct{})}
	ctx, d.cancel = context.WithCancel(ctx)
	go io.Copy(io.Discard, p.Stdout())
	go func() {
		select {
		case <-p.Exited():
			d.cancel()
		case <-d.opened:
		}
		<-p.Done()
		if isClosed(d.opened) && d.stream != nil {
			d.limitRead() // ends a Read that is waiting
		}
	}()
	go panics.Catch(func() { d.stream, d.err = dial(ctx) }, func(value any, stack []byte) {
		switch {
		case value != nil:
			d.stream, d.err = nil, &PanicError{Callback: "Dial", Value: value, Stack: stack}
		case d.err != nil:
			d.stream, d.err = nil, fmt.Errorf("Server.Dial: %w", d.err)
		case d.stream == nil:
			d.err = fmt.Errorf("Server.Dial: %w", errNoStream)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.closed && d.stream != nil {
			d.stream.Close()
		}
		close(d.opened)
	})
	return d
}

func (d *dialled) Stdin() io.WriteCloser { return dialledInput{d} }
func (d *dialled) Stdout() io.Reader     { return dialledOutput{d} }

// Close closes the process and the stream. It cancels the context of Dial, and does not wait for
// its return.
func (d *dialled) Close() {
	d.cancel()
	d.mu.Lock()
	first := !d.closed
	d.closed = true
	d.mu.Unlock()
	if first && isClosed(d.opened) && d.stream != nil {
		d.stream.Close()
	}
	d.serverProcess.Close()
}

type dialledInput struct{ *dialled }

func (d dialledInput) Write(b []byte) (int, error) {
	if !d.isOpen() {
		return 0, os.ErrClosed
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.stream.Write(b)
}

// Close ends the input of the server: on stdin, and on the stream if it can be closed in one
// direction. Otherwise it closes the stream.
func (d dialledInput) Close() error {
	d.cancel()
	if isClosed(d.opened) && d.stream != nil {
		if half, ok := d.stream.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		} else {
			d.stream.Close()
		}
	}
	return d.serverProcess.Stdin().Close()
}

type dialledOutput struct{ *dialled }

// Read returns io.EOF once the process has ended and the stream delivers nothing more, even if
// another process, such as a proxy, keeps the stream open.
func (d dialledOutput) Read(b []byte) (int, error) {
	if !d.isOpen() {
		return 0, io.EOF
	}
	if d.err != nil {
		return 0, d.err
	}
	if isClosed(d.serverProcess.Done()) {
		d.limitRead()
	}
	n, err := d.stream.Read(b)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		// If the deadline passes before Read begins, for example on a busy machine, Read fails even
		// if data is waiting. So only a second time-out in a row means that the server has sent no
		// more.
		d.limitRead()
		n, err = d.stream.Read(b)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}

// isOpen waits until Dial has returned. It returns false if the process ends first.
func (d *dialled) isOpen() bool {
	select {
	case <-d.opened:
		return true
	case <-d.serverProcess.Done():
		return isClosed(d.opened)
	}
}

// limitRead ends a Read of the stream that waits longer than quietTime, if the stream has
// deadlines.
func (d *dialled) limitRead() {
	if s, ok := d.stream.(interface{ SetReadDeadline(time.Time) error }); ok {
		s.SetReadDeadline(time.Now().Add(quietTime))
	}
}

// If the process has ended and its stream delivers nothing for quietTime, twice in a row, the
// stream counts as read to its end.
const quietTime = 100 * time.Millisecond
