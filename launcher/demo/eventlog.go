//go:build unix

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

// An eventLog prints the events of the launcher and keeps them.
type eventLog struct {
	ended chan struct{} // closed when the launcher sends no more events

	mu   sync.Mutex
	all  []*pb.Event
	next chan struct{} // closed at the next event, and then replaced
}

func newEventLog(events grpc.ServerStreamingClient[pb.Event]) *eventLog {
	l := &eventLog{ended: make(chan struct{}), next: make(chan struct{})}
	begin := time.Now()
	go func() {
		defer close(l.ended)
		for {
			e, err := events.Recv()
			if err != nil {
				return
			}
			show(e, begin)
			l.mu.Lock()
			l.all = append(l.all, e)
			close(l.next)
			l.next = make(chan struct{})
			l.mu.Unlock()
		}
	}()
	return l
}

// has reports whether the function matches returns true for one of the events, except for the first
// n. It also returns a channel that is closed when another event comes.
func (l *eventLog) has(n int, matches func(*pb.Event) bool) (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all[n:], matches), l.next
}

func (l *eventLog) events() []*pb.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func show(e *pb.Event, begin time.Time) {
	what := e.GetKind()
	if e.GetTo() != 0 {
		what = e.GetTo().String()
	}
	message := e.GetMessage()
	if e.GetTo() == pb.ProcessState_SPAWNING {
		message = message[strings.LastIndexByte(message, '/')+1:]
	}
	fmt.Printf("   %6.3f  %-11s %-19s %s\n", e.GetTime().AsTime().Sub(begin).Seconds(), cmp.Or(e.GetProcessId(), e.GetGroup()), what, message)
}
