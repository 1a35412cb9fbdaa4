package eventloop_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/eventloop"
)

// A client library calls back when a reply has come. No goroutine waits for the reply, and the
// request has a time-out.
func ExampleAsync() {
	loop := eventloop.New(context.Background())
	if err := loop.Start(); err != nil {
		fmt.Println(err)
		return
	}
	request := func(onReply func(reply string)) { time.AfterFunc(time.Millisecond, func() { onReply("pong") }) }

	answered := make(chan struct{})
	err := eventloop.Async(loop, time.Minute, func(_ context.Context, complete func(string, error)) {
		request(func(reply string) { complete(reply, nil) })
	}, func(reply string, err error) {
		fmt.Println(reply, err)
		close(answered)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-answered
	<-loop.Stop().Done()
	// Output: pong <nil>
}
