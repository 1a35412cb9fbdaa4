package eventloop_test

import (
	"context"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

// What is nil panics at once, in the caller, and says so.
func TestNil(t *testing.T) {
	l, p := started(t), pool(t, 1)
	h, _ := l.Handle()
	defer h.Release()
	released, _ := l.Handle()
	released.Release()
	work, done := func(context.Context) (int, error) { return 1, nil }, func(int, error) {}
	var none context.Context
	for want, f := range map[string]func(){
		"eventloop: cannot create a loop from a nil context": func() { eventloop.New(none) },
		"eventloop: cannot create a pool from a nil context": func() { eventloop.NewPool(none, 1) },
		"eventloop: Post of a nil function":                  func() { l.Post(nil) },
		"eventloop: Submit of a nil function":                func() { p.Submit(nil) },
		"eventloop: After of a nil function":                 func() { l.After(1, nil) },
		"eventloop: Every of a nil function":                 func() { l.Every(1, nil) },
		"eventloop: Run of a nil function":                   func() { l.Run(context.Background(), nil) },
		"eventloop: Run with a nil context":                  func() { l.Run(none, func(context.Context) error { return nil }) },
		"eventloop: Offload of a nil function":               func() { eventloop.Offload(l, p, nil, done) },
		"eventloop: Offload to a nil pool":                   func() { eventloop.Offload(l, nil, work, done) },
		"eventloop: Offload to a pool that was not made with NewPool": func() {
			eventloop.Offload(l, new(eventloop.Pool), work, done)
		},
		"eventloop: wait with a nil context":                         func() { l.WaitRunners(none) },
		"eventloop: Offload from a nil loop":                         func() { eventloop.Offload(nil, p, work, done) },
		"eventloop: Offload from a loop that was not made with New":  func() { eventloop.Offload(new(eventloop.Loop), p, work, done) },
		"eventloop: Submit to a nil pool":                            func() { (*eventloop.Pool)(nil).Submit(nop) },
		"eventloop: Submit to a pool that was not made with NewPool": func() { new(eventloop.Pool).Submit(nop) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() { equal(t, "panic", recover(), want) }()
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
	equal(t, "under way", l.Counts(), eventloop.Counts{Handles: 1})
}

// lifecycle, State Machine: a loop is started once.
func TestSecondStart(t *testing.T) {
	main := func(context.Context) error { t.Error("main runs"); return nil }
	l := started(t)
	is(t, "Start of a running loop", l.Start(), eventloop.ErrStarted)
	is(t, "Run of a running loop", l.Run(context.Background(), main), eventloop.ErrStarted)
	does(t, l, func() { is(t, "Start in a callback", l.Start(), eventloop.ErrStarted) })
	drains(t, l.Stop())
	is(t, "Start of a stopped loop", l.Start(), eventloop.ErrStopped)
	is(t, "Run of a stopped loop", l.Run(context.Background(), main), eventloop.ErrStopped)
	equal(t, "panics", l.Stats().Snapshot().Panics, uint64(0))
}

// A callback may post, as it may do anything else but wait for the loop. What it posts comes after what was posted before.
func TestPostFromACallback(t *testing.T) {
	l := started(t)
	var got []int
	done := make(chan struct{})
	free := busy(t, l)
	l.Post(func() {
		got = append(got, 1)
		l.Post(func() { got = append(got, 3); close(done) })
	})
	l.Post(func() { got = append(got, 2) })
	free()
	comes(t, "the last one", done)
	equal(t, "order", got, []int{1, 2, 3})
}

func TestPeriodsThatAreNone(t *testing.T) {
	l := started(t)
	for _, period := range []time.Duration{0, -1, -time.Hour} {
		timer, err := l.Every(period, never(t, "a timer without a period"))
		isTrue(t, "refused", timer == nil && err != nil)
	}
	_, err := l.Every(-time.Second, func() {})
	equal(t, "message", err.Error(), "eventloop: Every with a period of -1s: it must be positive; to run f once, use After or Post")
}

// Use after Stopped: everything answers, nothing hangs.
func TestUseAfterStopped(t *testing.T) {
	l, p := started(t), pool(t, 1)
	drains(t, l.Stop())
	drains(t, p.Stop())
	isTrue(t, "Post", !l.Post(never(t, "a callback")))
	isTrue(t, "Submit", !p.Submit(never(t, "a job")))
	_, err := l.After(0, never(t, "a timer"))
	is(t, "After", err, eventloop.ErrStopped)
	is(t, "Offload", eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {}), eventloop.ErrStopped)
	_, ok := l.Handle()
	isTrue(t, "Handle", !ok)
	is(t, "Quiesce", l.Quiesce(time.Hour), nil)
	is(t, "WaitRunners", l.WaitRunners(context.Background()), nil)
	is(t, "WaitIdle", p.WaitIdle(context.Background()), nil)
	is(t, "Err", l.Err(), nil)
	equal(t, "scope", l.Scope().State(), ctxshutdown.Complete)
	equal(t, "counts", l.Counts(), eventloop.Counts{})
	l.ShutdownHandle().Trigger()
}

// Options that are nil, or given twice, or of no use.
func TestOptions(t *testing.T) {
	l := started(t, nil, eventloop.WithName("first"), eventloop.WithName("last"), eventloop.WithInit(nil), eventloop.WithPanicHandler(nil), eventloop.WithOSThread())
	equal(t, "name", l.Scope().String(), "Swansong(last)")
	equal(t, "default name", started(t).Scope().String(), "Swansong(loop)")
	equal(t, "default name of a pool", pool(t, 1, eventloop.WithOSThread()).Scope().String(), "Swansong(pool)")
}
