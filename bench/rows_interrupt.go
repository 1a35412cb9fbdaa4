package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// wrapped is the gate of what is meant to take 2.5 ns more than what it wraps: one and a half times that, where the loop takes
// 2.3 ns and the loop through a wrapper that does nothing 3.4.
const wrapped = 1.8

func interruptRows() []row {
	rs := []row{
		{
			what: "Seq, an element", peer: "the loop without it", more: 2.5, anew: true,
			ours:  func() func(int) { s := running(); return func(n int) { sum(ctxshutdown.Seq(s, numbers(n))) } },
			their: func() func(int) { return func(n int) { sum(numbers(n)) } },
		},
		{
			what: "Seq, an element, of a child", peer: "the loop without it", more: 2.5, anew: true,
			ours:  func() func(int) { s := lone(); return func(n int) { sum(ctxshutdown.Seq(s, numbers(n))) } },
			their: func() func(int) { return func(n int) { sum(numbers(n)) } },
		},
		{
			what: "Seq, an element, of a child with values", peer: "the loop without it", more: 2.5, anew: true,
			ours:  func() func(int) { ctx := valued(); return func(n int) { sum(ctxshutdown.Seq(ctx, numbers(n))) } },
			their: func() func(int) { return func(n int) { sum(numbers(n)) } },
		},
		{
			what: "Seq, an element", peer: "the loop through a wrapper that does nothing", gate: wrapped, anew: true,
			ours:  func() func(int) { s := running(); return func(n int) { sum(ctxshutdown.Seq(s, numbers(n))) } },
			their: func() func(int) { return func(n int) { sum(through(numbers(n))) } },
		},
		{
			what: "Seq, an element", peer: "the loop, with a look at ctx.Err in it", limit: 1.1, anew: true,
			ours:  func() func(int) { s := running(); return func(n int) { sum(ctxshutdown.Seq(s, numbers(n))) } },
			their: func() func(int) { s := running(); return func(n int) { sumUntil(s, numbers(n)) } },
		},
		{
			what: "Seq, an element, of a child", peer: "the loop, with a look at ctx.Err in it", limit: 1.1, anew: true,
			ours:  func() func(int) { s := lone(); return func(n int) { sum(ctxshutdown.Seq(s, numbers(n))) } },
			their: func() func(int) { s := lone(); return func(n int) { sumUntil(s, numbers(n)) } },
		},
		{
			what: "Reader.Read, from memory", peer: "the Read without it", more: 2.5, anew: true,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(running(), &zeros{})) },
			their: func() func(int) { return reads(&zeros{}) },
		},
		{
			what: "Reader.Read, from memory, of a child", peer: "the Read without it", more: 2.5, anew: true,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(lone(), &zeros{})) },
			their: func() func(int) { return reads(&zeros{}) },
		},
		{
			what: "Reader.Read, from memory, of a child with values", peer: "the Read without it", more: 2.5, anew: true,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(valued(), &zeros{})) },
			their: func() func(int) { return reads(&zeros{}) },
		},
		{
			what: "Reader.Read, from memory", peer: "the Read through a wrapper that does nothing", gate: wrapped, anew: true,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(running(), &zeros{})) },
			their: func() func(int) { return reads(&throughReader{&zeros{}}) },
		},
		{
			what: "Seq, an element, of a context that others may end", peer: "the loop without it", more: 2.5, anew: true,
			ours:  func() func(int) { ctx := cancellable(); return func(n int) { sum(ctxshutdown.Seq(ctx, numbers(n))) } },
			their: func() func(int) { return func(n int) { sum(numbers(n)) } },
		},
		{
			what: "Seq, an element, of a context that others may end", peer: "the loop through a wrapper that looks at ctx.Err", limit: 1.1, anew: true,
			ours:  func() func(int) { ctx := cancellable(); return func(n int) { sum(ctxshutdown.Seq(ctx, numbers(n))) } },
			their: func() func(int) { ctx := cancellable(); return func(n int) { sum(asking(ctx, numbers(n))) } },
		},
		{
			what: "Reader.Read, from memory, of a context that others may end", peer: "the Read without it", more: 2.5, anew: true,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(cancellable(), &zeros{})) },
			their: func() func(int) { return reads(&zeros{}) },
		},
		{
			what: "Reader.Read, from memory, of a context that others may end", peer: "the Read through a wrapper that looks at ctx.Err", limit: 1.5, anew: true,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(cancellable(), &zeros{})) },
			their: func() func(int) { return reads(&askingReader{cancellable(), &zeros{}}) },
		},
		{
			what: "Reader.Read, from memory, of a source that can be woken", peer: "the Read without it", more: 2.5, anew: true,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(running(), &wakeable{})) },
			their: func() func(int) { return reads(&wakeable{}) },
		},
		{
			what: "Reader.Read, from memory, of a source that can be woken", peer: "the Read through a wrapper that counts who is inside", limit: 1.5, anew: true,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(running(), &wakeable{})) },
			their: func() func(int) { return reads(&countingReader{r: &wakeable{}}) },
		},
		{
			what: "Reader.Read, from a TCP connection", peer: "the Read without it", limit: 1.1,
			ours:  func() func(int) { return reads(ctxshutdown.NewReader(running(), fedByTCP())) },
			their: func() func(int) { return reads(fedByTCP()) },
		},
		{
			what: "Recv", peer: "select with ctx.Done", limit: 1.2,
			ours:  func() func(int) { s := running(); return received(func(ch chan int) { ctxshutdown.Recv(s, ch) }) },
			their: func() func(int) { s := running(); return received(func(ch chan int) { selectOne(s, ch) }) },
		},
		{
			what: "Call", peer: "a goroutine, a channel and select", limit: 1.5, allocs: 5,
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
	}
	for _, way := range []struct {
		what     string
		src, dst func() (io.ReadWriteCloser, io.ReadWriteCloser)
	}{
		{"TCP to TCP", tcp, tcp},
		{"pipe to pipe", pipe, pipe},
	} {
		rs = append(rs, row{
			what: fmt.Sprintf("io.Copy of 1 GiB through a Reader, %s, by parts", way.what), peer: "io.Copy", limit: 1 / 0.97, once: true, often: parts,
			ours: func() func(int) {
				return transfer(way.src, way.dst, func(r io.Reader) io.Reader { return ctxshutdown.NewReader(running(), r) })
			},
			their: func() func(int) { return transfer(way.src, way.dst, func(r io.Reader) io.Reader { return r }) },
		})
	}
	return rs
}

// interruptFloorRows show what the least takes that does what Seq and a Reader have to do.
func interruptFloorRows() []row {
	return []row{
		{
			what: "the loop, with a look at ctx.Err in it", peer: "the loop without it", more: 2.5, anew: true,
			ours:  func() func(int) { ctx := cancellable(); return func(n int) { sumUntil(ctx, numbers(n)) } },
			their: func() func(int) { return func(n int) { sum(numbers(n)) } },
		},
		{
			what: "the loop through a wrapper that does nothing", peer: "the loop without it", more: 2.5, anew: true,
			ours:  func() func(int) { return func(n int) { sum(through(numbers(n))) } },
			their: func() func(int) { return func(n int) { sum(numbers(n)) } },
		},
		{
			what: "the loop through a wrapper that looks at ctx.Err", peer: "the loop without it", more: 2.5, anew: true,
			ours:  func() func(int) { ctx := cancellable(); return func(n int) { sum(asking(ctx, numbers(n))) } },
			their: func() func(int) { return func(n int) { sum(numbers(n)) } },
		},
		{
			what: "the Read through a wrapper that looks at ctx.Err", peer: "the Read without it", more: 2.5, anew: true,
			ours:  func() func(int) { return reads(&askingReader{cancellable(), &zeros{}}) },
			their: func() func(int) { return reads(&zeros{}) },
		},
		{
			what: "the Read through a wrapper that counts who is inside", peer: "the Read without it", more: 2.5, anew: true,
			ours:  func() func(int) { return reads(&countingReader{r: &wakeable{}}) },
			their: func() func(int) { return reads(&wakeable{}) },
		},
	}
}

func running() *ctxshutdown.Swansong { return ctxshutdown.New(context.Background()) }

// lone returns a child that holds no guard.
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

//go:noinline
func sum(seq iter.Seq[int]) (total int) {
	for v := range seq {
		total += v
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

// A wakeable has deadlines, which are heeded by nobody: it never blocks.
type wakeable struct{ zeros }

func (*wakeable) SetReadDeadline(time.Time) error { return nil }

// A countingReader does the least by which somebody else can tell whether there is a Read to wake, when several may read.
type countingReader struct {
	inside atomic.Int64
	over   atomic.Bool
	r      io.Reader
}

func (c *countingReader) Read(p []byte) (int, error) {
	c.inside.Add(1)
	defer c.inside.Add(-1) // also when r panics
	if c.over.Load() {
		return 0, io.EOF
	}
	return c.r.Read(p)
}

// through is the least that a wrapper of a sequence can be.
func through(seq iter.Seq[int]) iter.Seq[int] {
	return func(yield func(int) bool) { seq(func(v int) bool { return yield(v) }) }
}

// asking is what one would write by hand.
func asking(ctx context.Context, seq iter.Seq[int]) iter.Seq[int] {
	return func(yield func(int) bool) { seq(func(v int) bool { return yield(v) && ctx.Err() == nil }) }
}

// A throughReader is the least that a wrapper of a Reader can be.
type throughReader struct{ r io.Reader }

func (t *throughReader) Read(p []byte) (int, error) { return t.r.Read(p) }

// An askingReader is that of a Reader.
type askingReader struct {
	ctx context.Context
	r   io.Reader
}

func (a *askingReader) Read(p []byte) (int, error) {
	if a.ctx.Err() != nil {
		return 0, io.EOF
	}
	return a.r.Read(p)
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

// fedByTCP returns a connection that always has something to read.
func fedByTCP() io.Reader {
	a, b := tcp()
	go io.Copy(a, struct{ io.Reader }{&zeros{}}) // until the process ends
	return b
}

func received(recv func(ch chan int)) func(n int) {
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

// parts is in how many copies a gibibyte is copied. Three goroutines on two processors are scheduled well or badly for as long
// as a copy lasts, which has a large one take half as long again; so there are many.
const parts = 8

// transfer prepares the copy of a part that somebody sends and somebody takes.
func transfer(src, dst func() (io.ReadWriteCloser, io.ReadWriteCloser), wrap func(io.Reader) io.Reader) func(int) {
	const size = 1 << 30 / parts
	from, in := src()
	out, to := dst()
	return func(int) {
		taken := make(chan struct{})
		go func() {
			defer close(taken)
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
		<-taken
		in.Close()
	}
}

func tcp() (a, b io.ReadWriteCloser) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer ln.Close()
	a, err = net.Dial("tcp", ln.Addr().String()) // the kernel completes it, accepted or not
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
