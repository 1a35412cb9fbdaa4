// Package lostscope has scopes that are not shut down on some path.
package lostscope

import (
	"context"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func work() error                           { return nil }
func run(context.Context) error             { return nil }
func serve(s *ctxshutdown.Swansong) error   { return nil }
func runAll(ctxs ...context.Context)        {}
func runThen(ctx context.Context, x ...any) {}

func onlyInspected(ctx context.Context) {
	s := ctxshutdown.New(ctx) // want `the scope s is not shut down when the function returns at line 24; write defer s.Shutdown\(\), or hand it over on every path`
	if g, ok := s.TryGuard(); ok {
		defer g.Release()
	}
	fmt.Println("running:", s.Err() == nil, s.State())
}

func passedAsContext(ctx context.Context) error {
	s := ctxshutdown.New(ctx, ctxshutdown.WithName("app")) // want `the scope s is not shut down when the function returns at line 30`
	runThen(s)
	go run(s)
	return run(s.Work())
}

func onlySometimes(ctx context.Context) error {
	s := ctxshutdown.New(ctx) // want `the scope s is not shut down when the function returns at line 36`
	if err := run(s); err != nil {
		return err
	}
	s.Shutdown()
	return nil
}

func captured(ctx context.Context) func() bool {
	s := ctxshutdown.New(ctx) // want `the scope s is not shut down when the function returns at line 44`
	return func() bool { return s.Go(func(context.Context) {}) }
}

func aGoroutineWaits(ctx context.Context) {
	s := ctxshutdown.New(ctx) // want `the scope s is not shut down`
	go func() {
		<-s.Done()
		work()
	}()
	use(s.Done())
}

func use(<-chan struct{}) {}

func aChild(ctx context.Context) error {
	s, _ := ctxshutdown.WithCancel(ctx) // want `the scope s is not shut down when the function returns at line 60; write defer s.Shutdown\(\)`
	return run(s)
}

func aChildWithOneGuard(ctx context.Context) {
	s, _ := ctxshutdown.WithCancel(ctx) // want `the scope s is not shut down`
	s.Guard().Release()
}

func aChildWithCancel(ctx context.Context) error {
	s, cancel := ctxshutdown.WithCancel(ctx) // want `the scope s is not shut down when the function returns at line 71; write defer cancel\(\)`
	if err := run(s); err != nil {
		return err
	}
	cancel()
	return nil
}

func cancelOnly(ctx context.Context) error {
	_, cancel := ctxshutdown.WithCancel(ctx) // want `write defer cancel\(\)`
	if err := work(); err != nil {
		return err
	}
	cancel()
	return nil
}

func childrenPileUp(ctx context.Context, conns chan int) {
	s := ctxshutdown.New(ctx)
	defer s.Shutdown()
	for range conns {
		conn, _ := ctxshutdown.WithCancel(s) // want `the scope conn is not shut down when the loop repeats`
		run(conn)
	}
	for s.Err() == nil {
		conn, _ := ctxshutdown.WithCancel(s) // want `the scope conn is not shut down when the loop repeats`
		run(conn)
	}
}

func overwritten(ctx context.Context) {
	s := ctxshutdown.New(ctx) // want `the scope s is not shut down when s is overwritten at line 101`
	s = ctxshutdown.New(ctx)
	s.Shutdown()
}

func whileAwake(ctx context.Context) {
	s := ctxshutdown.New(ctx) // want `the scope s is not shut down when the function returns at line 109`
	for ctxshutdown.Sleep(s, time.Second) {
		if work() != nil {
			return
		}
	}
}

func discarded(ctx context.Context) {
	ctxshutdown.New(ctx)               // want `the scope of New is discarded, so nothing can shut it down`
	_ = ctxshutdown.New(ctx)           // want `the scope of New is discarded`
	_, _ = ctxshutdown.WithCancel(ctx) // want `the scope of WithCancel is discarded`
}

// The program does not end when a method with the name main returns.
type program struct{}

func (program) main() {
	s := ctxshutdown.New(context.Background()) // want `the scope s is not shut down`
	run(s)
}
