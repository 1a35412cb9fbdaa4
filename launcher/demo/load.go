//go:build unix

package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/swansong-go/swansong/launcher/internal/load"
)

// allLoad contains the clients that send requests to both groups.
type allLoad struct {
	writers, askers []*load.Client
	keyvalue, web   load.Ledger
	killed          interruption
	cancel          context.CancelFunc
	running         sync.WaitGroup
}

// newLoad starts clients, half of which keep their connections open.
func newLoad(s *stage) *allLoad {
	ctx, cancel := context.WithCancel(context.Background())
	l := &allLoad{cancel: cancel}
	for n := range 4 {
		w := &load.Client{Dial: s.dial("keyvalue"), KeepAlive: n%2 == 0}
		a := &load.Client{Dial: s.dial("web"), KeepAlive: n%2 == 0}
		l.writers, l.askers = append(l.writers, w), append(l.askers, a)
		l.running.Go(func() { l.keyvalue.Write(ctx, fmt.Sprint("client", n), w, l.killed.allowsRetry) })
		l.running.Go(func() { l.web.Ask(ctx, a, nil) })
	}
	return l
}

// stop stops the clients, and returns when every request has been answered.
func (l *allLoad) stop() {
	l.cancel()
	l.running.Wait()
}
