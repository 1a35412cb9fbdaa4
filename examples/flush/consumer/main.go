// Command consumer collects messages, of which one arrives every millisecond, and saves their
// number when it is stopped.
//
//	go run ./examples/flush/consumer -out messages.txt
package main

import (
	"fmt"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/examples/flush/store"
)

func main() { store.Main(consume) }

func consume(s *ctxshutdown.Swansong, file string) error {
	fmt.Println("ready")
	n := 0
	for ctxshutdown.Sleep(s, time.Millisecond) { // Sleep returns false after the stop
		n++
		fmt.Println("message", n)
	}
	return store.Save(s.Work(), file, n)
}
