package grpcdrain

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// Messages returns what a client sends, for a range loop that ends when the client has sent all, at an error, which is
// the last pair, or when the scope of the call is told to stop:
//
//	for msg, err := range grpcdrain.Messages(stream) {
//		if err != nil {
//			return err
//		}
//		// use msg
//	}
//	return stream.SendAndClose(summary)
//
// A goroutine receives ahead, by one message, until the handler returns, so nobody else may receive from the stream
// afterwards. What it has when the loop hears of the stop is delivered, and nothing is received after that; a message that
// arrives as the stop does may be dropped like those that come later: Recv, which waits for as long as the client likes,
// cannot be asked whether it is about to return one. Without a scope in the stream's context only the client ends the loop.
// A panic in Recv, of a stream that an interceptor has wrapped, is the loop's.
func Messages[T any](stream interface {
	Context() context.Context
	Recv() (T, error)
}) iter.Seq2[T, error] {
	if stream == nil {
		panic("grpcdrain: Messages of a nil stream")
	}
	return func(yield func(T, error) bool) {
		ctx := stream.Context()
		stop := ctx
		if scope, ok := ctxshutdown.FromContext(ctx); ok {
			stop = scope
		}
		type message struct {
			v      T
			err    error
			panics any
		}
		received, left := make(chan message), make(chan struct{})
		defer close(left)
		if stop.Err() != nil {
			return
		}
		go func() { // Recv ends at the latest when the handler returns
			defer close(received) // by itself, it says that Recv has called Goexit
			for {
				var m message
				func() {
					defer func() { m.panics = recover() }()
					m.v, m.err = stream.Recv()
				}()
				select {
				case received <- m:
				case <-left:
					return
				}
				if m.err != nil || m.panics != nil || stop.Err() != nil {
					return
				}
			}
		}()
		for {
			var m message
			ok := true
			select {
			case m, ok = <-received:
			case <-stop.Done():
				select {
				case m, ok = <-received: // both
				default:
					return
				}
			}
			if !ok {
				if stop.Err() == nil {
					yield(m.v, errGoexit)
				}
				return
			}
			if m.panics != nil {
				panic(m.panics)
			}
			if errors.Is(m.err, io.EOF) || !yield(m.v, m.err) || m.err != nil {
				return
			}
		}
	}
}

var errGoexit = errors.New("grpcdrain: the Recv of the stream given to Messages ended its goroutine with runtime.Goexit")
