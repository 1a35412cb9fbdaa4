package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"os"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// interruptRows compare the readers and sequences of package ctxshutdown, which a stop interrupts,
// with the checks of a context that a user would write. The function is long because it is a table.
func interruptRows() []row {
	const loop = "the loop with ctx.Err() in its body"
	const read = "a wrapper that checks ctx.Err()"
	var rs []row
	for _, from := range []struct {
		name string
		ctx  func() context.Context
	}{
		{"", func() context.Context { return running() }},
		{", of a child scope", func() context.Context { return lone() }},
		{", of a child scope with a value", valued},
		{", of a context.WithCancel", cancellable},
	} {
		rs = append(rs,
			row{
				what: "Seq of an inlined sequence, per element" + from.name, peer: loop, limit: 1.15, anew: true,
				ours:  func() func(int) { ctx := from.ctx(); return func(n int) { sumNumbers(ctx, n) } },
				their: func() func(int) { ctx := from.ctx(); return func(n int) { sumNumbersUntil(ctx, n) } },
			},
			row{
				what: "Seq, per element" + from.name, peer: loop, limit: 1.15, anew: true,
				ours:  func() func(int) { ctx := from.ctx(); return func(n int) { sum(ctxshutdown.Seq(ctx, numbers(n))) } },
				their: func() func(int) { ctx := from.ctx(); return func(n int) { sumUntil(ctx, numbers(n)) } },
			},
			row{
				what: "Reader.Read from memory" + from.name, peer: read, limit: 1.5, anew: true,
				ours:  func() func(int) { return reads(ctxshutdown.NewReader(from.ctx(), &zeros{})) },
				their: func() func(int) { return reads(&checkingReader{from.ctx(), &zeros{}}) },
			})
	}
	rs = append(rs, []row{
		{
			// A function that makes a sequence from another one, and asks ctx after each element,
			// does at least what this peer does.
			what: "Seq, per element, of a context.WithCancel", peer: loop + ", over a sequence that passes the elements of another one on", limit: 1.15, anew: true,
			ours:  func() func(int) { ctx := cancellable(); return func(n int) { sum(ctxshutdown.Seq(ctx, numbers(n))) } },
			their: func() func(int) { ctx := cancellable(); return func(n int) { sumUntil(ctx, passed(numbers(n))) } },
		},
		{
			what: "Reader.Read from a TCP connection", peer: "Read of the connection", limit: 1.05, gate: 1.3,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(running(), fedByTCP())) },
			their: func() func(int) { return reads(fedByTCP()) },
		},
		{
			what: "Recv", peer: "select with ctx.Done", limit: 1.2,
			ours:  func() func(int) { s := running(); return receiving(func(ch chan int) { ctxshutdown.Recv(s, ch) }) },
			their: func() func(int) { s := running(); return receiving(func(ch chan int) { selectOne(s, ch) }) },
		},
		{
			what: "Call", peer: "a goroutine, a channel and select", limit: 1.5, allocs: 4,
			ours: func() func(int) {
				s := running()
				return func(n int) {
					for range n {
						ctxshutdown.Call(s, answer)
					}
				}
			},
			their: func() func(int) {
				s := running()
				return func(n int) {
					for range n {
						callByHand(s, answer)
					}
				}
			},
		},
	}...)
	for _, way := range []struct {
		what     string
		src, dst func() (io.ReadWriteCloser, io.ReadWriteCloser)
	}{
		{"TCP to TCP", tcp, tcp},
		{"pipe to pipe", pipe, pipe},
	} {
		rs = append(rs, row{
			what: fmt.Sprintf("io.Copy of 1 GiB through a Reader, %s, in %d parts", way.what, parts), peer: "io.Copy", limit: 1 / 0.97, once: true, often: parts,
			ours: func() func(int) {
				return transfer(way.src, way.dst, func(r io.Reader) io.Reader { return ctxshutdown.NewReader(running(), r) })
			},
			their: func() func(int) { return transfer(way.src, way.dst, func(r io.Reader) io.Reader { return r }) },
		})
	}
	return rs
}

func running() *ctxshutdown.Swansong { return ctxshutdown.New(context.Background()) }

// lone returns a child without guards.
func lone() *ctxshutdown.Swansong {
	s, _ := ctxshutdown.WithCancel(running())
	return s
}

type valueKey struct{}

func valued() context.Context { return context.WithValue(lone(), valueKey{}, 1) }

func numbers(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// passed returns a sequence of the elements of seq. It costs what Seq would cost without its check.
//
//go:noinline
func passed(seq iter.Seq[int]) iter.Seq[int] {
	return func(yield func(int) bool) {
		seq(func(v int) bool { return yield(v) })
	}
}

//go:noinline
func sum(seq iter.Seq[int]) (total int) {
	for v := range seq {
		total += v
	}
	return total
}

// sumNumbers adds up numbers(n). Unlike sum, it shows the compiler the sequence, so that the loop,
// Seq and the sequence are inlined into one function, as with slices.Values.
//
//go:noinline
func sumNumbers(ctx context.Context, n int) (total int) {
	for v := range ctxshutdown.Seq(ctx, numbers(n)) {
		total += v
	}
	return total
}

//go:noinline
func sumNumbersUntil(ctx context.Context, n int) (total int) {
	for v := range numbers(n) {
		total += v
		if ctx.Err() != nil {
			break
		}
	}
	return total
}

//go:noinline
func sumUntil(ctx context.Context, seq iter.Seq[int]) (total int) {
	for v := range seq {
		total += v
		if ctx.Err() != nil {
			break
		}
	}
	return total
}

type zeros struct{ n int }

//go:noinline
func (z *zeros) Read(p []byte) (int, error) {
	z.n++
	return len(p), nil
}

// A checkingReader is what a user would write instead of a ctxshutdown.Reader.
type checkingReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *checkingReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, io.EOF
	}
	return c.r.Read(p)
}

func reads(r io.Reader) func(n int) {
	p := make([]byte, 64)
	return func(n int) { readMany(r, p, n) }
}

//go:noinline
func readMany(r io.Reader, p []byte, n int) {
	for range n {
		if _, err := r.Read(p); err != nil {
			panic(err)
		}
	}
}

// fedByTCP returns a connection that always has data to read.
func fedByTCP() io.Reader {
	a, b := tcp()
	go io.Copy(a, struct{ io.Reader }{&zeros{}}) // this goroutine ends with the process
	return b
}

// receiving returns a function that sends to a channel and receives from it with recv.
func receiving(recv func(ch chan int)) func(n int) {
	ch := make(chan int, 1)
	return func(n int) {
		for range n {
			ch <- 1
			recv(ch)
		}
	}
}

//go:noinline
func selectOne(ctx context.Context, ch chan int) (v int, ok bool) {
	select {
	case v, ok = <-ch:
	case <-ctx.Done():
	}
	return v, ok
}

func answer(context.Context) (int, error) { return 42, nil }

func callByHand(ctx context.Context, f func(context.Context) (int, error)) (int, error) {
	type result struct {
		v   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f(ctx)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// parts is the number of copies in which a gibibyte is copied. Three goroutines on two processors
// keep a good or bad schedule for a whole copy, and a bad one takes 1.5 times as long. Many small
// copies even that out.
const parts = 8

// transfer prepares a sender and a receiver. Each call of the function that it returns copies one
// part from the sender to the receiver. All parts together have 1 GiB.
func transfer(src, dst func() (io.ReadWriteCloser, io.ReadWriteCloser), wrap func(io.Reader) io.Reader) func(int) {
	const size = 1 << 30 / parts
	from, in := src()
	out, to := dst()
	return func(int) {
		received := make(chan struct{})
		go func() {
			defer close(received)
			block := make([]byte, 1<<20)
			for {
				if _, err := to.Read(block); err != nil {
					to.Close()
					return
				}
			}
		}()
		go func() {
			defer from.Close()
			block := make([]byte, 1<<20)
			for range size / len(block) {
				if _, err := from.Write(block); err != nil {
					panic(err)
				}
			}
		}()
		if n, err := io.Copy(out, wrap(in)); n != size || err != nil {
			panic(fmt.Sprintf("bench: copied %d bytes: %v", n, err))
		}
		out.Close()
		<-received
		in.Close()
	}
}

func tcp() (a, b io.ReadWriteCloser) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer ln.Close()
	a, err = net.Dial("tcp", ln.Addr().String()) // the kernel accepts the connection, so Dial need not wait for Accept
	if err != nil {
		panic(err)
	}
	b, err = ln.Accept()
	if err != nil {
		panic(err)
	}
	return a, b
}

func pipe() (w, r io.ReadWriteCloser) {
	read, write, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	return write, read
}
