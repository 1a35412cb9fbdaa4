package ctxshutdown_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

// manyTimes is for what the runtime decides by chance: a select of two that are ready.
const manyTimes = 100

func TestRecv_PrefersTheStopAndLeavesTheElement(t *testing.T) {
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
		if diff := cmp.Diff([]int{2, 3}, []int{<-ch, <-ch}); diff != "" {
			t.Errorf("the next owner (-want +got):\n%s", diff)
		}
	})
}

func TestSend_PrefersTheStopAndDoesNotSend(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		ch, waiting := make(chan int, 2), make(chan int)
		if !ctxshutdown.Send(ctx, ch, 1) {
			t.Error("before the stop: not sent")
		}
		go func() { <-waiting }()
		synctest.Wait()
		end()
		for range manyTimes {
			if ctxshutdown.Send(ctx, ch, 2) || ctxshutdown.Send(ctx, waiting, 2) {
				t.Fatal("sent after the stop")
			}
		}
		if len(ch) != 1 || <-ch != 1 {
			t.Error("the channel has more than was sent")
		}
		waiting <- 0
	})
}

func TestChannels_BlockedWhenTheStopComes(t *testing.T) {
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
			"nobody there": func() chan int { return make(chan int) },
			"nil":          func() chan int { return nil },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
					got := make(chan bool, 1)
					go func() { got <- ends(ctx, ch()) }()
					synctest.Wait()
					if len(got) != 0 {
						t.Fatal("it does not block")
					}
					end()
					if !<-got {
						t.Error("something was received or sent")
					}
				})
			})
		}
	}
}

func TestChannels_Closed(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		ch := make(chan string, 2)
		ch <- "a"
		ch <- "b"
		close(ch)
		var all []string
		for v := range ctxshutdown.All(ctx, ch) {
			all = append(all, v)
		}
		if diff := cmp.Diff([]string{"a", "b"}, all); diff != "" {
			t.Errorf("All (-want +got):\n%s", diff)
		}
		if v, ok := ctxshutdown.Recv(ctx, ch); v != "" || ok {
			t.Errorf("Recv: %q, %v", v, ok)
		}
		send := func() { ctxshutdown.Send(ctx, ch, "c") }
		if diff := cmp.Diff("send on closed channel", panicOf(send)); diff != "" {
			t.Errorf("Send panics (-want +got):\n%s", diff)
		}
		end()
		if diff := cmp.Diff(noPanic, panicOf(send)); diff != "" {
			t.Errorf("Send after the stop panics (-want +got):\n%s", diff)
		}
	})
}

// Under the race detector: between many senders and receivers that all stop at once, each element that was sent has
// been received, or is still in the channel.
func TestChannels_LoseNothingInTheRace(t *testing.T) {
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
				t.Errorf("%d sent, %d received, %d left", sent.Load(), received.Load(), left)
			}
		})
	}
}
