package ctxshutdown_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// When its scope is told to stop, a loop that reads from a connection ends, even while no data
// arrives.
func ExampleNewReader() {
	client, conn := net.Pipe()
	s := ctxshutdown.New(context.Background())

	go func() {
		fmt.Fprintln(client, "one")
		fmt.Fprintln(client, "two")
		s.Shutdown()
	}()
	r := ctxshutdown.NewReader(s, conn)
	defer r.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fmt.Println(lines.Text())
	}
	fmt.Println("stopped:", r.Stopped(), lines.Err())
	// Output:
	// one
	// two
	// stopped: true <nil>
}

// A Reader that the stop has ended leaves in the connection what it has not read. Rest returns a
// reader of these bytes.
func ExampleReader_Rest() {
	client, conn := net.Pipe()
	s := ctxshutdown.New(context.Background())
	first := ctxshutdown.NewReader(s, conn)
	s.Shutdown()
	got, err := io.ReadAll(first)
	fmt.Printf("%q %v\n", got, err)

	go func() {
		fmt.Fprint(client, "all of it")
		client.Close()
	}()
	got, err = io.ReadAll(first.Rest())
	fmt.Printf("%q %v\n", got, err)
	// Output:
	// "" <nil>
	// "all of it" <nil>
}

// When the scope is told to stop, io.Copy from a Reader ends. It still uses splice and sendfile
// where the operating system supports them.
func ExampleReader_WriteTo() {
	s := ctxshutdown.New(context.Background())
	var dst bytes.Buffer
	n, err := io.Copy(&dst, ctxshutdown.NewReader(s, strings.NewReader("some bytes")))
	fmt.Println(n, err)
	s.Shutdown()
	n, err = io.Copy(&dst, ctxshutdown.NewReader(s, strings.NewReader("more bytes")))
	fmt.Println(n, err)
	// Output:
	// 10 <nil>
	// 0 <nil>
}

// A Read of standard input cannot be woken. With the option Detached, Read returns when the scope
// is told to stop, and input that arrives later is not lost.
func ExampleDetached() {
	keyboard, stdin := io.Pipe() // has no deadlines, like standard input
	s := ctxshutdown.New(context.Background())
	r := ctxshutdown.NewReader(s, keyboard, ctxshutdown.Detached())

	time.AfterFunc(time.Millisecond, func() { s.Shutdown() })
	n, err := r.Read(make([]byte, 80)) // no input arrives
	fmt.Println(n, err, r.Stopped())

	go func() {
		fmt.Fprint(stdin, "typed too late")
		stdin.Close()
	}()
	rest, _ := io.ReadAll(r.Rest())
	fmt.Printf("%q\n", rest)
	// Output:
	// 0 EOF true
	// "typed too late"
}

// A guarded Reader delays the drain until its next Read or its Close: only then has the caller
// handled the bytes of the last Read.
func ExampleGuarded() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("import"))
	r := ctxshutdown.NewReader(s, strings.NewReader("a line\nanother\n"), ctxshutdown.Guarded())
	defer r.Close()

	r.Read(make([]byte, 7))
	s.Shutdown()
	fmt.Println(s.State(), s.GuardReport())
	_, err := r.Read(make([]byte, 7))
	fmt.Println(s.State(), err)
	// Output:
	// ShuttingDown 1 guard: import ×1
	// Complete EOF
}

// After the stop, a Writer refuses to write, and the error has the cause of the stop.
func ExampleNewWriter() {
	s := ctxshutdown.New(context.Background())
	w := ctxshutdown.NewWriter(s, os.Stdout)
	fmt.Fprintln(w, "written whole")
	s.ShutdownCause(errors.New("disk is full"))
	_, err := fmt.Fprintln(w, "refused whole")
	fmt.Println(err)
	fmt.Println(errors.Is(err, ctxshutdown.ErrShutdown))
	// Output:
	// written whole
	// ctxshutdown: write refused: shut down (disk is full)
	// true
}

// When the scope is told to stop, the listener is closed and the accept loop ends. Each connection
// holds a guard, so the drain waits for the connections.
func ExampleNewListener() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ln := ctxshutdown.NewListener(s, inner)
	time.AfterFunc(time.Millisecond, func() { s.Shutdown() })
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			fmt.Println("closed")
			return
		}
		s.Go(func(ctx context.Context) { conn.Close() })
	}
	// Output: closed
}

// Every element that the loop has pulled from the queue is handled. The others stay in the queue.
func ExampleSeq() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	queue := []string{"a", "b", "c", "d"}
	pop := func(yield func(string) bool) {
		for len(queue) > 0 {
			job := queue[0]
			queue = queue[1:]
			if !yield(job) {
				return
			}
		}
	}
	for job := range ctxshutdown.Seq(s, pop) {
		fmt.Println("job", job)
		if job == "b" {
			s.Shutdown()
		}
	}
	fmt.Println("left:", queue)
	// Output:
	// job a
	// job b
	// left: [c d]
}

func ExampleSeq2() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	for i, name := range ctxshutdown.Seq2(s, slices.All([]string{"zero", "one", "two"})) {
		fmt.Println(i, name)
		if i == 1 {
			s.Shutdown()
		}
	}
	// Output:
	// 0 zero
	// 1 one
}

func ExampleAll() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	jobs := make(chan int, 3)
	jobs <- 1
	jobs <- 2
	jobs <- 3
	for job := range ctxshutdown.All(s, jobs) {
		fmt.Println("job", job)
		if job == 2 {
			s.Shutdown()
		}
	}
	fmt.Println("left:", len(jobs))
	// Output:
	// job 1
	// job 2
	// left: 1
}

// After the stop, Recv returns false and leaves a ready element in the channel.
func ExampleRecv() {
	s := ctxshutdown.New(context.Background())
	ch := make(chan string, 1)
	ctxshutdown.Send(s, ch, "hello")
	fmt.Println(ctxshutdown.Recv(s, ch))
	ctxshutdown.Send(s, ch, "stays")
	s.Shutdown()
	v, ok := ctxshutdown.Recv(s, ch)
	fmt.Printf("%q %v, %d left\n", v, ok, len(ch))
	// Output:
	// hello true
	// "" false, 1 left
}

func ExampleSend() {
	s := ctxshutdown.New(context.Background())
	ch := make(chan int, 2)
	fmt.Println(ctxshutdown.Send(s, ch, 1))
	s.Shutdown()
	fmt.Println(ctxshutdown.Send(s, ch, 2), len(ch))
	// Output:
	// true
	// false 1
}

// Call stops waiting for a function that ignores its context. The function holds a guard, so the
// drain still waits for it.
func ExampleCall() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("legacy"))
	release := make(chan struct{})
	v, err := ctxshutdown.Call(s, func(context.Context) (int, error) {
		s.Shutdown()
		<-release // the function ignores its context, which has ended
		return 42, nil
	})
	fmt.Println(v, err)
	fmt.Println(s.GuardReport())
	close(release)
	<-s.Completion().Done()
	fmt.Println(s.State())
	// Output:
	// 0 ctxshutdown: shut down
	// 1 guard: legacy ×1
	// Complete
}
