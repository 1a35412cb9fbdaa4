package grpcdrain

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// Messages returns an iterator over the messages that a client sends. It ends when the client has
// sent all messages, after an error, which is the last pair, or when the scope of the call is
// stopped:
//
//	for msg, err := range grpcdrain.Messages(stream) {
//		if err != nil {
//			return err
//		}
//		// use msg
//	}
//	return stream.SendAndClose(summary)
//
// A goroutine receives one message ahead until the handler returns, so the handler must not receive
// from the stream after the loop. A message that was received before the stop is delivered. A
// message that arrives during the stop may be dropped, like later ones: Recv may block for as long
// as the client likes, so the loop cannot wait for it.
//
// If the stream's context has no scope, only the client ends the loop. If Recv panics, which is
// possible if an interceptor has wrapped the stream, the loop panics.
func Messages[T any](stream interface {
	Context() context.Context
	Recv() (T, error)
}) iter.Seq2[T, error] {
	if stream == nil {
		panic("grpcdrain: Messages: nil stream; pass the stream of the handler")
	}
	return func(yield func(T, error) bool) {
		ctx := stream.Context()
		stop := ctx
		if scope, ok := ctxshutdown.FromContext(ctx); ok {
			stop = scope
		}
		type message struct {
			v          T
			err        error
			panicValue any
		}
		received, done := make(chan message), make(chan struct{})
		defer close(done)
		if stop.Err() != nil {
			return
		}
		go func() { // the goroutine ends at the latest when the handler returns, because Recv then returns
			// If Recv calls runtime.Goexit, received is closed although no error was sent to it.
			defer close(received)
			for {
				var m message
				func() {
					defer func() { m.panicValue = recover() }()
					m.v, m.err = stream.Recv()
				}()
				select {
				case received <- m:
				case <-done:
					return
				}
				if m.err != nil || m.panicValue != nil || stop.Err() != nil {
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
				case m, ok = <-received: // a message arrived at the same time as the stop, and is still delivered
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
			if m.panicValue != nil {
				panic(m.panicValue)
			}
			if errors.Is(m.err, io.EOF) || !yield(m.v, m.err) || m.err != nil {
				return
			}
		}
	}
}

var errGoexit = errors.New("grpcdrain: Messages: Recv of the stream called runtime.Goexit")
