package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// receiveAll opens a stream for each name and calls f for each message, one call at a time, until
// all streams have ended or one has failed. The protocol has one name for each call, so several
// names are several streams; their messages are in no order across names.
//
// It returns the first error of a stream or of f, which ends the other streams, or the cause of
// ctx. The end of a stream (io.EOF) is no error: the launcher has ended, or there is nothing more
// to send.
func receiveAll[T any](ctx context.Context, names []string, open func(context.Context, string) (grpc.ServerStreamingClient[T], error), f func(*T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			stream, err := open(ctx, name)
			for err == nil {
				var next *T
				if next, err = stream.Recv(); err == nil {
					mu.Lock()
					err = f(next)
					mu.Unlock()
				}
			}
			if !errors.Is(err, io.EOF) {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// A streamPrinter prints the messages of streams.
type streamPrinter struct {
	w    io.Writer
	json bool
}

// print prints a message, and how many messages were lost before it. With --json, it prints m as
// JSON, in which a field contains that number. Otherwise it prints the number missed, and then the
// text that the function line returns.
func (p *streamPrinter) print(m proto.Message, missed int32, line func() string) error {
	if p.json {
		return printJSON(p.w, m, false)
	}
	if missed > 0 {
		fmt.Fprintf(p.w, "(%d lost)\n", missed)
	}
	_, err := fmt.Fprintln(p.w, line())
	return err
}
