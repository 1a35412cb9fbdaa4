// Command actor counts on an event loop, and saves the number when it is stopped.
//
//	go run ./examples/flush/actor -out count.txt
package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/examples/flush/store"
)

func main() { store.Main(count) }

func count(s *ctxshutdown.Swansong, file string) error {
	// The loop works on after the stop, so its scope derives from Work, which ends only when the
	// drain is cut short.
	loop := eventloop.New(s.Work(), eventloop.WithName("counter"))
	if err := loop.Start(); err != nil {
		return err
	}
	fmt.Println("ready")
	n := 0 // only callbacks of the loop use n until the loop has ended
	for ctxshutdown.Sleep(s, time.Millisecond) {
		if !loop.Post(func() { n++ }) {
			return errors.New("the loop has refused a callback")
		}
	}
	if err := loop.Stop().Wait(s.Work()); err != nil {
		return fmt.Errorf("the count is not saved: %w", err)
	}
	return store.Save(s.Work(), file, n)
}
