package graceful_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// asked is a context that ends a moment from now, as a signal would come.
func asked() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Millisecond)
}

// Between the signal and the end of s there is the lame duck: work goes on, and the load balancers find out.
func ExampleWithLameDuck() {
	ctx, cancel := asked()
	defer cancel()
	graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		p, _ := graceful.FromContext(s)
		<-p.LameDuck()
		fmt.Println("not ready, and still at work:", s.Err() == nil)
		<-s.Done()
		fmt.Println("told to stop")
		return nil
	}, graceful.WithLameDuck(time.Second), graceful.WithOutput(io.Discard))
	// Output:
	// not ready, and still at work: true
	// told to stop
}

// What has not ended when the soft time is over is cancelled, and abandoned when it has not ended after the hard time.
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
	// cancelled: graceful: not drained after 10ms on rung Soft
	// exit code: 2
}

// Extensions are granted up to a maximum.
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

// The blockers are printed on the last rung, here to standard output.
func ExampleWithOutput() {
	stuck := make(chan struct{})
	defer close(stuck)
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		s.Go(func(context.Context) { <-stuck })
		return nil
	}, graceful.WithSoft(time.Millisecond), graceful.WithHard(time.Millisecond), graceful.WithOutput(os.Stdout),
		graceful.WithScope(ctxshutdown.WithName("shop")))
	fmt.Println("exit code:", graceful.ExitCode(err))
	// Output:
	// graceful: abandoned (not drained after 1ms on rung Hard), with 1 held:
	// 	shop ×1
	// 	CTXSHUTDOWN_TRACE=1 tells where, for how long, and what they are doing.
	// exit code: 3
}

// With a name and trace for the root scope, reports say more.
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

// Ready is called when everything that clients can see is open. Under systemd, the unit is started then.
func ExampleReady() {
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer ln.Close()
		graceful.Ready(s)
		return nil // or serve on ln until s is done
	})
	fmt.Println(err)
	// Output:
	// <nil>
}
