package ctxshutdown_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// manyTimes is the number of times that a test repeats a select with two ready cases. The runtime
// picks one of the two cases at random.
const manyTimes = 100

func TestRecv_PrefersStopToReadyElement(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		ch := make(chan int, 3)
		ch <- 1
		ch <- 2
		ch <- 3
		if v, ok := ctxshutdown.Recv(ctx, ch); v != 1 || !ok {
			t.Errorf("before the stop: %d, %v", v, ok)
		}
		end()
		for range manyTimes {
			if v, ok := ctxshutdown.Recv(ctx, ch); v != 0 || ok {
				t.Fatalf("after the stop: %d, %v", v, ok)
			}
			for v := range ctxshutdown.All(ctx, ch) {
				t.Fatalf("after the stop, All: %d", v)
			}
		}
		testkit.Equal(t, "elements left in the channel", []int{<-ch, <-ch}, []int{2, 3})
	})
}

func TestSend_PrefersStopToReadyReceiver(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		ch, waiting := make(chan int, 2), make(chan int)
		if !ctxshutdown.Send(ctx, ch, 1) {
			t.Error("Send returns false before the stop")
		}
		go func() { <-waiting }()
		synctest.Wait()
		end()
		for range manyTimes {
			if ctxshutdown.Send(ctx, ch, 2) || ctxshutdown.Send(ctx, waiting, 2) {
				t.Fatal("Send returns true after the stop")
			}
		}
		if len(ch) != 1 || <-ch != 1 {
			t.Error("the channel has other elements than were sent")
		}
		waiting <- 0
	})
}

func TestChannels_StopWakesBlockedCalls(t *testing.T) {
	for name, ends := range map[string]func(ctx context.Context, ch chan int) bool{
		"Recv": func(ctx context.Context, ch chan int) bool {
			v, ok := ctxshutdown.Recv(ctx, ch)
			return v == 0 && !ok
		},
		"Send": func(ctx context.Context, ch chan int) bool { return !ctxshutdown.Send(ctx, ch, 1) },
		"All": func(ctx context.Context, ch chan int) bool {
			for range ctxshutdown.All(ctx, ch) {
				return false
			}
			return true
		},
	} {
		for kind, ch := range map[string]func() chan int{
			"unbuffered": func() chan int { return make(chan int) },
			"nil":        func() chan int { return nil },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
					got := make(chan bool, 1)
					go func() { got <- ends(ctx, ch()) }()
					synctest.Wait()
					if len(got) != 0 {
						t.Fatal("the call returns before the stop")
					}
					end()
					if !<-got {
						t.Error("the call has received or sent an element")
					}
				})
			})
		}
	}
}

func TestChannels_ClosedChannelEndsRecvAndPanicsInSend(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		ch := make(chan string, 2)
		ch <- "a"
		ch <- "b"
		close(ch)
		var all []string
		for v := range ctxshutdown.All(ctx, ch) {
			all = append(all, v)
		}
		testkit.Equal(t, "All", all, []string{"a", "b"})
		if v, ok := ctxshutdown.Recv(ctx, ch); v != "" || ok {
			t.Errorf("Recv: %q, %v", v, ok)
		}
		send := func() { ctxshutdown.Send(ctx, ch, "c") }
		testkit.Equal(t, "Send panics", panicOf(send), "send on closed channel")
		end()
		testkit.Equal(t, "Send after the stop panics", panicOf(send), noPanic)
	})
}

// A scope is stopped while several goroutines send to a channel and several others receive from it.
// Each element that was sent has been received, or is still in the channel.
func TestChannels_StopLosesNoElement(t *testing.T) {
	for range 5 {
		onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
			ch := make(chan int, 3)
			var sent, received atomic.Int64
			var racing sync.WaitGroup
			for range 4 {
				racing.Go(func() {
					for ctxshutdown.Send(ctx, ch, 1) {
						sent.Add(1)
					}
				})
				racing.Go(func() {
					for range ctxshutdown.All(ctx, ch) {
						received.Add(1)
					}
				})
			}
			for sent.Load() < 100 {
				runtime.Gosched()
			}
			end()
			racing.Wait()
			if left := int64(len(ch)); sent.Load() != received.Load()+left {
				t.Errorf("%d elements sent, %d received, %d left in the channel", sent.Load(), received.Load(), left)
			}
		})
	}
}
