package ctxshutdown_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A scope is a context: values, deadlines and causes are those of package context.
func ExampleSwansong() {
	ctx := context.WithValue(context.Background(), key("user"), "ada")
	ctx, cancel := context.WithDeadline(ctx, time.Date(2099, time.December, 31, 0, 0, 0, 0, time.UTC))
	defer cancel()
	s := ctxshutdown.New(ctx, ctxshutdown.WithName("app"))

	until, _ := s.Deadline()
	fmt.Println(s.String(), s.Value(key("user")), until.Year())
	_, limited := s.Work().Deadline() // work that was begun is seen through
	fmt.Println("work has a deadline:", limited)

	select {
	case <-s.Done():
	default:
		s.ShutdownCause(errors.New("the licence has run out"))
	}
	fmt.Println(s.Err(), "because", context.Cause(s))
	// Output:
	// Swansong(app) ada 2099
	// work has a deadline: false
	// context canceled because the licence has run out
}

// Who asks why is told the first cause.
func ExampleSwansong_ShutdownCause() {
	errDisk := errors.New("disk is full")
	s := ctxshutdown.New(context.Background())
	s.ShutdownCause(errDisk)
	s.ShutdownCause(errors.New("too late"))
	fmt.Println(context.Cause(s), errors.Is(context.Cause(s), errDisk))
	// Output:
	// disk is full true
}

// Done is for a select, where something else may come first.
func ExampleCompletion() {
	s := ctxshutdown.New(context.Background())
	g := s.Guard()
	secondSignal := make(chan os.Signal, 1)
	secondSignal <- os.Interrupt

	drained := s.Shutdown()
	select {
	case <-drained.Done():
		fmt.Println("drained")
	case sig := <-secondSignal:
		fmt.Println(sig, "with", s.GuardCount(), "guard held")
	}
	g.Release()
	<-drained.Done()
	fmt.Println(drained.Wait(context.Background()))
	// Output:
	// interrupt with 1 guard held
	// <nil>
}

// A report is made of entries, which a program can look at: who holds most comes first.
func ExampleGuardEntry() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("shop"))
	defer s.Shutdown()
	orders, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("orders"))
	defer cancel()
	defer s.Guard().Release()
	defer orders.Guard().Release()
	defer orders.Guard().Release()

	report := s.GuardReport()
	var most ctxshutdown.GuardEntry = report.Entries()[0]
	fmt.Printf("%s holds %d of %d\n", most.Path, most.Count, report.Count())
	// Output:
	// shop/orders holds 2 of 3
}

// TryGo is for what can be left out while all places are taken, and done another time.
func ExampleGroup_TryGo() {
	g := ctxshutdown.NewGroup(context.Background())
	g.SetLimit(1)
	release := make(chan struct{})
	g.Go(func(context.Context) error { <-release; return nil })
	fmt.Println("refreshed the cache:", g.TryGo(func(context.Context) error { return nil }))
	close(release)
	fmt.Println(g.Wait())
	// Output:
	// refreshed the cache: false
	// <nil>
}

// A deadline of one's own goes through the Reader, which puts it back after it has used the deadline to wake up. A time-out
// does not end it.
func ExampleReader() {
	client, conn := net.Pipe()
	defer client.Close()
	s := ctxshutdown.New(context.Background())
	r := ctxshutdown.NewReader(s, conn)
	defer r.Close()
	fmt.Println("woken by a stop:", r.CanWake())

	buf := make([]byte, 80)
	r.SetReadDeadline(time.Now()) // the client is idle
	_, err := r.Read(buf)
	fmt.Println("timed out:", errors.Is(err, os.ErrDeadlineExceeded), "stopped:", r.Stopped())

	r.SetReadDeadline(time.Time{})
	go fmt.Fprint(client, "a request")
	n, err := r.Read(buf)
	fmt.Printf("%q %v\n", buf[:n], err)

	s.Shutdown()
	_, err = r.Read(buf)
	fmt.Println(err, "stopped:", r.Stopped())
	// Output:
	// woken by a stop: true
	// timed out: true stopped: false
	// "a request" <nil>
	// EOF stopped: true
}

// On the hard tier, a Writer goes on through the drain; cut short, it tells how much of a record has left.
func ExampleWriter() {
	client, conn := net.Pipe()
	defer client.Close()
	s := ctxshutdown.New(context.Background())
	defer s.Guard().Release() // of the request that is being answered
	w := ctxshutdown.NewWriter(s.Work(), conn)
	defer w.Close()

	s.Shutdown()
	go func() {
		io.CopyN(io.Discard, client, 3) // the client hangs after three bytes,
		s.Force(errors.New("out of patience"))
	}()
	n, err := w.Write([]byte("answer"))
	fmt.Println(n, err)
	fmt.Println(w.SetWriteDeadline(time.Now().Add(time.Second))) // of whoever writes to the connection next
	// Output:
	// 3 ctxshutdown: write cut short: shut down (out of patience)
	// <nil>
}

// io.Copy to a Writer writes all that it has read. What comes after the stop is not read any more, and the error says why.
func ExampleWriter_ReadFrom() {
	s := ctxshutdown.New(context.Background())
	var dst bytes.Buffer
	w := ctxshutdown.NewWriter(s, &dst)
	n, err := io.Copy(w, strings.NewReader("some bytes"))
	fmt.Println(n, err)
	s.Shutdown()
	n, err = io.Copy(w, strings.NewReader("more bytes"))
	fmt.Println(n, err)
	// Output:
	// 10 <nil>
	// 0 ctxshutdown: write refused: shut down
}
