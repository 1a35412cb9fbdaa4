//go:build unix

package client_test

import (
	"context"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/client"
)

// When this process is asked to stop, it waits for its guards. The example makes the request
// itself, in place of a launcher or SIGTERM.
func Example() {
	life, err := client.Serve()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	life.Shutdown.Track(s)

	s.Go(func(context.Context) {
		<-s.Done()
		fmt.Println("the last order is dealt with")
	})
	life.Readiness.Set(client.Ready, "listening")

	go life.Shutdown.Request(client.Request{Reason: "a new build"})
	err = life.Shutdown.Run(context.Background(), func(ctx context.Context) error {
		return s.Shutdown().Wait(ctx)
	})
	fmt.Println("drained:", err, "exit code:", client.ExitCode(err))
	// Output:
	// the last order is dealt with
	// drained: <nil> exit code: 0
}
