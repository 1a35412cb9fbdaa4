package eventloop_test

import (
	"context"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A nil argument causes a panic at once in the goroutine of the caller. The message names the
// argument.
func TestBadInput_NilPanicsInCaller(t *testing.T) {
	l, p := startLoop(t), newPool(t, 1)
	h, _ := l.Handle()
	defer h.Release()
	released, _ := l.Handle()
	released.Release()
	work, done := func(context.Context) (int, error) { return 1, nil }, func(int, error) {}
	var none context.Context
	for want, f := range map[string]func(){
		"eventloop: New with a nil context":      func() { eventloop.New(none) },
		"eventloop: NewPool with a nil context":  func() { eventloop.NewPool(none, 1) },
		"eventloop: Post with a nil function":    func() { l.Post(nil) },
		"eventloop: Submit with a nil function":  func() { p.Submit(nil) },
		"eventloop: After with a nil function":   func() { l.After(1, nil) },
		"eventloop: Every with a nil function":   func() { l.Every(1, nil) },
		"eventloop: Run with a nil function":     func() { l.Run(context.Background(), nil) },
		"eventloop: Run with a nil context":      func() { l.Run(none, func(context.Context) error { return nil }) },
		"eventloop: Offload with a nil function": func() { eventloop.Offload(l, p, nil, done) },
		"eventloop: Offload to a nil pool":       func() { eventloop.Offload(l, nil, work, done) },
		"eventloop: Offload to a pool that was not created with NewPool": func() {
			eventloop.Offload(l, new(eventloop.Pool), work, done)
		},
		"eventloop: a wait for offloads with a nil context":             func() { l.WaitRunners(none) },
		"eventloop: Offload from a nil loop":                            func() { eventloop.Offload(nil, p, work, done) },
		"eventloop: Offload from a loop that was not created with New":  func() { eventloop.Offload(new(eventloop.Loop), p, work, done) },
		"eventloop: Submit to a nil pool":                               func() { (*eventloop.Pool)(nil).Submit(nop) },
		"eventloop: Submit to a pool that was not created with NewPool": func() { new(eventloop.Pool).Submit(nop) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() { testkit.Equal(t, "panic", recover(), want) }()
			f()
		})
	}
	for name, f := range map[string]func(){
		"Handle.Post":             func() { h.Post(nil) },
		"Handle.Post, released":   func() { released.Post(nil) },
		"Offload without done":    func() { eventloop.Offload(l, p, work, nil) },
		"OffloadTimeout":          func() { eventloop.OffloadTimeout(l, p, time.Hour, work, nil) },
		"OffloadTimeout, no pool": func() { eventloop.OffloadTimeout(l, nil, time.Hour, work, done) },
		"OffloadTimeout, no loop": func() { eventloop.OffloadTimeout(nil, p, time.Hour, work, done) },
		"WaitIdle":                func() { p.WaitIdle(none) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { isTrue(t, "it panics", recover() != nil) }()
			f()
		})
	}
	isTrue(t, "a nil timer can be stopped", !(*eventloop.Timer)(nil).Stop())
	testkit.Equal(t, "under way", l.Counts(), eventloop.Counts{Handles: 1})
}

// A loop can be started once. docs/internals/eventloop.md#states
func TestStart_FailsIfLoopWasStartedBefore(t *testing.T) {
	main := func(context.Context) error { t.Error("main was called"); return nil }
	l := startLoop(t)
	testkit.ErrorIs(t, "Start of a running loop", l.Start(), eventloop.ErrStarted)
	testkit.ErrorIs(t, "Run of a running loop", l.Run(context.Background(), main), eventloop.ErrStarted)
	runOn(t, l, func() { testkit.ErrorIs(t, "Start in a callback", l.Start(), eventloop.ErrStarted) })
	awaitDone(t, l.Stop())
	testkit.ErrorIs(t, "Start of a stopped loop", l.Start(), eventloop.ErrStopped)
	testkit.ErrorIs(t, "Run of a stopped loop", l.Run(context.Background(), main), eventloop.ErrStopped)
	testkit.Equal(t, "panics", l.Stats().Snapshot().Panics, uint64(0))
}

// A callback may call Post. The posted callback runs after all callbacks that were posted before.
func TestPost_FromCallbackRunsAfterQueuedCallbacks(t *testing.T) {
	l := startLoop(t)
	var got []int
	done := make(chan struct{})
	free := block(t, l)
	l.Post(func() {
		got = append(got, 1)
		l.Post(func() { got = append(got, 3); close(done) })
	})
	l.Post(func() { got = append(got, 2) })
	free()
	receive(t, "the last one", done)
	testkit.Equal(t, "order", got, []int{1, 2, 3})
}

func TestEvery_RejectsInvalidPeriod(t *testing.T) {
	l := startLoop(t)
	for _, period := range []time.Duration{0, -1, -time.Hour} {
		timer, err := l.Every(period, never(t, "a timer without a period"))
		isTrue(t, "refused", timer == nil && err != nil)
	}
	_, err := l.Every(-time.Second, func() {})
	testkit.Equal(t, "message", err.Error(), "eventloop: Every with a period of -1s: it must be positive; to run f once, use After or Post")
}

// No method of a Stopped loop blocks.
func TestLoop_MethodsReturnAfterStopped(t *testing.T) {
	l, p := startLoop(t), newPool(t, 1)
	awaitDone(t, l.Stop())
	awaitDone(t, p.Stop())
	isTrue(t, "Post", !l.Post(never(t, "a callback")))
	isTrue(t, "Submit", !p.Submit(never(t, "a job")))
	_, err := l.After(0, never(t, "a timer"))
	testkit.ErrorIs(t, "After", err, eventloop.ErrStopped)
	testkit.ErrorIs(t, "Offload", eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {}), eventloop.ErrStopped)
	_, ok := l.Handle()
	isTrue(t, "Handle", !ok)
	testkit.ErrorIs(t, "Quiesce", l.Quiesce(time.Hour), eventloop.ErrStopped)
	testkit.ErrorIs(t, "WaitRunners", l.WaitRunners(context.Background()), nil)
	testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(context.Background()), nil)
	testkit.ErrorIs(t, "Err", l.Err(), nil)
	testkit.Equal(t, "scope", l.Scope().State(), ctxshutdown.Complete)
	testkit.Equal(t, "counts", l.Counts(), eventloop.Counts{})
	l.ShutdownHandle().Trigger()
}

// An option may be nil, may be given twice, and may have no effect.
func TestOption_MayBeNilOrRepeated(t *testing.T) {
	l := startLoop(t, nil, eventloop.WithName("first"), eventloop.WithName("last"), eventloop.WithInit(nil), eventloop.WithPanicHandler(nil), eventloop.WithOSThread())
	testkit.Equal(t, "name", l.Scope().String(), "Swansong(last)")
	testkit.Equal(t, "default name", startLoop(t).Scope().String(), "Swansong(loop)")
	testkit.Equal(t, "default name of a pool", newPool(t, 1, eventloop.WithOSThread()).Scope().String(), "Swansong(pool)")
}
