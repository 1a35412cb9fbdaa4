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

// An eventLog prints what the launcher tells, and keeps it.
type eventLog struct {
	over chan struct{} // closed when the launcher tells no more

	mu    sync.Mutex
	all   []*pb.Event
	fresh chan struct{} // closed at the next event
}

func newEventLog(events grpc.ServerStreamingClient[pb.Event]) *eventLog {
	l := &eventLog{over: make(chan struct{}), fresh: make(chan struct{})}
	begun := time.Now()
	go func() {
		defer close(l.over)
		for {
			e, err := events.Recv()
			if err != nil {
				return
			}
			show(e, begun)
			l.mu.Lock()
			l.all = append(l.all, e)
			close(l.fresh)
			l.fresh = make(chan struct{})
			l.mu.Unlock()
		}
	}()
	return l
}

// has reports whether something has happened since the first n events, and returns a channel that is closed when
// something else has.
func (l *eventLog) has(n int, what func(*pb.Event) bool) (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all[n:], what), l.fresh
}

func (l *eventLog) events() []*pb.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func show(e *pb.Event, begun time.Time) {
	what := e.GetKind()
	if e.GetTo() != 0 {
		what = e.GetTo().String()
	}
	message := e.GetMessage()
	if e.GetTo() == pb.ProcessState_SPAWNING {
		message = message[strings.LastIndexByte(message, '/')+1:]
	}
	fmt.Printf("   %6.3f  %-11s %-19s %s\n", e.GetTime().AsTime().Sub(begun).Seconds(), cmp.Or(e.GetProcessId(), e.GetGroup()), what, message)
}
