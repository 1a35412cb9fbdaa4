package graceful_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// endSoon returns a context that ends shortly. In these examples, its end takes the place of a
// signal.
func endSoon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Millisecond)
}

// Between the signal and the stop of the scope s, the process reports that it is not ready but
// still accepts work, so that load balancers notice.
func ExampleWithLameDuck() {
	ctx, cancel := endSoon()
	defer cancel()
	graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		p, _ := graceful.FromContext(s)
		<-p.LameDuck()
		fmt.Println("not ready, and still at work:", s.Err() == nil)
		s.Shutdown() // without this call, the scope would be stopped when the minute is over
		<-s.Done()
		fmt.Println("told to stop")
		return nil
	}, graceful.WithLameDuck(time.Minute), graceful.WithOutput(io.Discard))
	// Output:
	// not ready, and still at work: true
	// told to stop
}

// Work that has not finished when the soft time is over is cancelled. Work that has not returned
// when the hard time is over is abandoned.
func ExampleWithHard() {
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		s.Go(func(work context.Context) {
			<-work.Done()
			fmt.Println("cancelled:", context.Cause(work))
		})
		return nil
	}, graceful.WithSoft(10*time.Millisecond), graceful.WithHard(10*time.Second), graceful.WithOutput(io.Discard))
	fmt.Println("exit code:", graceful.ExitCode(err))
	// Output:
	// cancelled: graceful: the drain took longer than 10ms
	// exit code: 2
}

// Extend makes the drain longer, but in total by no more than the maximum extension.
func ExampleWithMaxExtension() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		s.Go(func(work context.Context) {
			<-s.Done()
			fmt.Println("granted a minute:", graceful.Extend(work, time.Minute, "an export") == time.Minute)
			fmt.Println("granted an hour:", graceful.Extend(work, time.Hour, "another") == time.Hour)
		})
		return nil
	}, graceful.WithMaxExtension(2*time.Minute), graceful.WithOutput(io.Discard))
	// Output:
	// granted a minute: true
	// granted an hour: false
}

// When Run abandons a drain, it prints the guards that are still held and the stacks of the
// program's goroutines.
func ExampleWithOutput() {
	var out bytes.Buffer
	stuck := make(chan struct{})
	defer close(stuck)
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		running := make(chan struct{})
		s.Go(func(context.Context) {
			close(running)
			<-stuck
		})
		<-running
		return nil
	}, graceful.WithSoft(time.Millisecond), graceful.WithHard(time.Millisecond), graceful.WithOutput(&out),
		graceful.WithScope(ctxshutdown.WithName("shop")))
	printed, stacks, _ := strings.Cut(out.String(), "1 goroutine of the program:\n")
	fmt.Print(printed)
	fmt.Println("stack:", strings.Contains(stacks, "ExampleWithOutput"))
	fmt.Println("exit code:", graceful.ExitCode(err))
	// Output:
	// graceful: abandoned (cancelled work did not return within 1ms); guards still held: 1
	// 	shop ×1
	// 	Set CTXSHUTDOWN_TRACE=1 to see where guards were acquired and how long they have been held.
	// stack: true
	// exit code: 3
}

// If the root scope has a name and tracing, reports contain more details.
func ExampleWithScope() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		g := s.Guard()
		defer g.Release()
		fmt.Println(s.GuardReport().Entries()[0].Path)
		return nil
	}, graceful.WithScope(ctxshutdown.WithName("shop"), ctxshutdown.WithTrace()))
	// Output:
	// shop/main
}

// Under a .socket unit of systemd, Listen returns the socket that systemd holds across restarts.
// Elsewhere it listens like net.Listen.
func ExampleListen() {
	ln, err := graceful.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	fmt.Println(ln.Addr().Network())
	// Output:
	// tcp
}

// Call Ready when the program accepts requests. Under systemd, the unit counts as started from then
// on.
func ExampleReady() {
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer ln.Close()
		graceful.Ready(s)
		return nil // a real program would serve on ln here until s is done
	})
	fmt.Println(err)
	// Output:
	// <nil>
}
