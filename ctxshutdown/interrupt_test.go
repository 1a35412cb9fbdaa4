package ctxshutdown_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// tiers are the kinds of contexts that an interrupt can have. The function make returns such a
// context, and a function end that ends it with the cause errCause. If the context is hard, make
// has stopped its scope.
var tiers = []struct {
	name string
	make func(t *testing.T) (ctx context.Context, end func())
}{
	{"soft", func(t *testing.T) (context.Context, func()) {
		s := ctxshutdown.New(t.Context())
		return s, func() { s.ShutdownCause(errCause) }
	}},
	{"soft, child", func(t *testing.T) (context.Context, func()) {
		root := ctxshutdown.New(t.Context())
		return child(root), func() { root.ShutdownCause(errCause) }
	}},
	{"hard", func(t *testing.T) (context.Context, func()) {
		s := ctxshutdown.New(t.Context())
		s.Guard()
		s.Shutdown()
		return s.Work(), func() { s.Force(errCause) }
	}},
	{"hard, derived", func(t *testing.T) (context.Context, func()) {
		s := ctxshutdown.New(t.Context())
		s.Guard()
		s.Shutdown()
		return owned(t)(context.WithTimeout(s.Work(), 1e6*time.Hour)), func() { s.Force(errCause) }
	}},
}

// onTiers runs the test once with a context of each of the tiers.
func onTiers(t *testing.T, test func(t *testing.T, ctx context.Context, end func())) {
	for _, tier := range tiers {
		t.Run(tier.name, func(t *testing.T) {
			ctx, end := tier.make(t)
			test(t, ctx, end)
		})
	}
}

// inBubbles runs the test once with a context of each of the tiers, each time in a synctest bubble.
func inBubbles(t *testing.T, test func(t *testing.T, ctx context.Context, end func())) {
	for _, tier := range tiers {
		t.Run(tier.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := tier.make(t)
				test(t, ctx, end)
			})
		})
	}
}

// result is the result of a Read or a Write.
type result struct {
	Text string // the bytes read
	N    int
	Err  error
}

func data(text string) result { return result{text, len(text), nil} }

var atEOF = result{"", 0, io.EOF}

// readOnce calls Read. Its name identifies a blocked Read in stack dumps; see awaitState.
//
//go:noinline
func readOnce(r io.Reader) result {
	p := make([]byte, 100)
	n, err := r.Read(p)
	return result{string(p[:max(n, 0)]), n, err}
}

// reading calls readOnce in a new goroutine and returns a channel that receives the result.
func reading(r io.Reader) <-chan result {
	got := make(chan result, 1)
	go func() { got <- readOnce(r) }()
	return got
}

// await receives from ch, and fails the test if nothing arrives in time.
func await[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(tooLong):
		stacks := make([]byte, 1<<20)
		t.Fatalf("no result in time:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
	return v
}

func wantResult(t *testing.T, what string, want, got result) {
	t.Helper()
	if diff := cmp.Diff(want, got, sameErrors); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// awaitState waits until a goroutine whose stack contains the given function is blocked in the
// given state, such as "IO wait". It looks for the state in a stack dump.
func awaitState(t *testing.T, function, state string) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	for start := time.Now(); time.Since(start) < tooLong; runtime.Gosched() {
		for text := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if _, after, _ := strings.Cut(text, "["); strings.HasPrefix(after, state) && strings.Contains(text, function) {
				return
			}
		}
	}
	t.Fatalf("no goroutine reaches the state %q in %s:\n%s", state, function, stacks[:runtime.Stack(stacks, true)])
}

// fedPipe is like pipeWith, but closes the pipe when the test ends. It is for tests that do not
// read to the end.
func fedPipe(t *testing.T, text string) io.Reader {
	r := pipeWith(text)
	t.Cleanup(func() { r.(net.Conn).Close() })
	return r
}

// unwakeable returns the two ends of a pipe without deadlines. A call on one end blocks until the
// other end is used.
func unwakeable() (io.Reader, io.WriteCloser) { return io.Pipe() }

// manual is a context that ends in two steps, so that a test can act between them. The method end
// closes the Done channel, and runAfterFuncs calls the functions registered by AfterFunc. The
// contexts of package context take the same two steps right after each other.
type manual struct {
	context.Context // answers the calls of Value; manual has the other methods itself
	done            chan struct{}
	mu              sync.Mutex
	err             error
	funcs           map[int]func()
	lastID          int
}

func newManual(values context.Context) *manual {
	return &manual{Context: values, done: make(chan struct{}), funcs: map[int]func(){}}
}

func (m *manual) Done() <-chan struct{} { return m.done }

func (m *manual) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// AfterFunc registers f. It is called by package context when a context is derived from m, and by
// context.AfterFunc.
func (m *manual) AfterFunc(f func()) (undo func() bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastID++
	id := m.lastID
	m.funcs[id] = f
	return func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		_, ok := m.funcs[id]
		delete(m.funcs, id)
		return ok
	}
}

// registered returns the number of functions registered by AfterFunc.
func (m *manual) registered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.funcs)
}

func (m *manual) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = context.Canceled
		close(m.done)
	}
}

func (m *manual) runAfterFuncs() {
	m.mu.Lock()
	funcs := m.funcs
	m.funcs = nil
	m.mu.Unlock()
	for _, f := range funcs {
		go f()
	}
}

// guarded are the types that accept the option Guarded, some with different sources. Each is listed
// with all actions that must release its guard.
var guarded = []struct {
	name string
	make func(t *testing.T, ctx context.Context) any
	use  func(t *testing.T, it any)            // an action after which the guard must still be held
	ends map[string]func(t *testing.T, it any) // each action must release the guard
	stop func(t *testing.T, it any)            // makes a call after the end of the context; the call must release the guard
}{
	{
		"Reader",
		func(t *testing.T, ctx context.Context) any {
			return ctxshutdown.NewReader(ctx, strings.NewReader("0123456789"), ctxshutdown.Guarded())
		},
		func(t *testing.T, it any) { it.(io.Reader).Read(make([]byte, 5)) },
		map[string]func(t *testing.T, it any){
			"until its end":       func(_ *testing.T, it any) { readOnce(it.(io.Reader)); readOnce(it.(io.Reader)) },
			"until its Close":     func(_ *testing.T, it any) { it.(io.Closer).Close() },
			"until io.Copy of it": func(_ *testing.T, it any) { io.Copy(io.Discard, it.(io.Reader)) },
		},
		func(t *testing.T, it any) { wantResult(t, "Read", atEOF, readOnce(it.(io.Reader))) },
	},
	{
		"Reader with deadlines",
		func(t *testing.T, ctx context.Context) any {
			return ctxshutdown.NewReader(ctx, fedPipe(t, "0123456789"), ctxshutdown.Guarded())
		},
		func(t *testing.T, it any) {
			it.(io.Reader).Read(make([]byte, 5))
			it.(*ctxshutdown.Reader).SetReadDeadline(time.Unix(1, 0))
			if got := readOnce(it.(io.Reader)); !errors.Is(got.Err, os.ErrDeadlineExceeded) {
				t.Errorf("Read after its deadline: %v", got)
			}
			it.(*ctxshutdown.Reader).SetReadDeadline(time.Time{})
		},
		map[string]func(t *testing.T, it any){
			"until its end":       func(_ *testing.T, it any) { readOnce(it.(io.Reader)); readOnce(it.(io.Reader)) },
			"until its Close":     func(_ *testing.T, it any) { it.(io.Closer).Close() },
			"until io.Copy of it": func(_ *testing.T, it any) { io.Copy(io.Discard, it.(io.Reader)) },
		},
		func(t *testing.T, it any) { wantResult(t, "Read", atEOF, readOnce(it.(io.Reader))) },
	},
	{
		"detached Reader",
		func(t *testing.T, ctx context.Context) any {
			return ctxshutdown.NewReader(ctx, strings.NewReader("0123456789"), ctxshutdown.Detached(), ctxshutdown.Guarded())
		},
		func(t *testing.T, it any) { it.(io.Reader).Read(make([]byte, 5)) },
		map[string]func(t *testing.T, it any){
			"until its end":   func(_ *testing.T, it any) { readOnce(it.(io.Reader)); readOnce(it.(io.Reader)) },
			"until its Close": func(_ *testing.T, it any) { it.(io.Closer).Close() },
		},
		func(t *testing.T, it any) { wantResult(t, "Read", atEOF, readOnce(it.(io.Reader))) },
	},
	{
		"Reader that fails",
		func(t *testing.T, ctx context.Context) any {
			failing := readerFunc(func([]byte) (int, error) { return 0, errCause })
			return ctxshutdown.NewReader(ctx, failing, ctxshutdown.Guarded())
		},
		func(t *testing.T, it any) {},
		map[string]func(t *testing.T, it any){"until the error": func(_ *testing.T, it any) { readOnce(it.(io.Reader)) }},
		func(t *testing.T, it any) { wantResult(t, "Read", atEOF, readOnce(it.(io.Reader))) },
	},
	{
		"Writer",
		func(t *testing.T, ctx context.Context) any {
			return ctxshutdown.NewWriter(ctx, io.Discard, ctxshutdown.Guarded())
		},
		func(t *testing.T, it any) { io.WriteString(it.(io.Writer), "bytes") },
		map[string]func(t *testing.T, it any){"until its Close": func(_ *testing.T, it any) { it.(io.Closer).Close() }},
		func(t *testing.T, it any) {
			if _, err := io.WriteString(it.(io.Writer), "bytes"); !errors.Is(err, ctxshutdown.ErrShutdown) {
				t.Errorf("Write: %v", err)
			}
		},
	},
	{
		"Writer that fails",
		func(t *testing.T, ctx context.Context) any {
			failing := writerFunc(func([]byte) (int, error) { return 0, errCause })
			return ctxshutdown.NewWriter(ctx, failing, ctxshutdown.Guarded())
		},
		func(t *testing.T, it any) {},
		map[string]func(t *testing.T, it any){
			"until the error": func(_ *testing.T, it any) { io.WriteString(it.(io.Writer), "bytes") },
		},
		func(t *testing.T, it any) { io.WriteString(it.(io.Writer), "bytes") },
	},
	{
		"listener",
		func(t *testing.T, ctx context.Context) any {
			return ctxshutdown.NewListener(ctx, listen(t, "tcp"), ctxshutdown.Guarded())
		},
		func(t *testing.T, it any) {},
		map[string]func(t *testing.T, it any){"until its Close": func(_ *testing.T, it any) { it.(io.Closer).Close() }},
		func(t *testing.T, it any) {
			if _, err := it.(net.Listener).Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept: %v", err)
			}
		},
	},
}

func TestGuarded_ReadersAndListenersHoldGuardUntilTheyEnd(t *testing.T) {
	for _, g := range guarded {
		for name, end := range g.ends {
			t.Run(g.name+"/"+name, func(t *testing.T) {
				for _, tier := range []func(s *ctxshutdown.Swansong) context.Context{
					func(s *ctxshutdown.Swansong) context.Context { return s },
					func(s *ctxshutdown.Swansong) context.Context { return request{s, "r"} },
					(*ctxshutdown.Swansong).Work,
				} {
					c, s := claim{t, "docs/internals/core.md#semantic-7"}, ctxshutdown.New(t.Context())
					it := g.make(t, tier(s))
					c.checkState(s, ctxshutdown.Running, 1)
					g.use(t, it)
					c.checkState(s, ctxshutdown.Running, 1)
					end(t, it)
					c.checkState(s, ctxshutdown.Running, 0)
					end(t, it)
					c.checkState(s, ctxshutdown.Running, 0)
					c.awaitCompletion(s.Shutdown())
				}
			})
		}
		t.Run(g.name+" until it sees the end of its context", func(t *testing.T) {
			onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
				c, s := claim{t, "docs/internals/core.md#semantic-7"}, child(ctx)
				it := g.make(t, ctx)
				done := s.Completion()
				held, _ := ctxshutdown.FromContext(ctx)
				before := held.GuardCount()
				end()
				g.stop(t, it)
				c.equal("guards that are gone", before-held.GuardCount(), 1)
				c.awaitCompletion(done)
			})
		})
		t.Run(g.name+" made too late", func(t *testing.T) {
			onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
				s, _ := ctxshutdown.FromContext(ctx)
				end()
				before := s.GuardCount()
				it := g.make(t, ctx)
				claim{t, "docs/internals/core.md#semantic-7"}.equal("guards", s.GuardCount(), before)
				g.stop(t, it)
			})
		})
		t.Run(g.name+" without a scope", func(t *testing.T) {
			it := g.make(t, t.Context())
			g.use(t, it)
			for _, end := range g.ends {
				end(t, it)
			}
		})
	}
}

// If a scope is stopped between two Reads of a guarded Reader, the Reader holds its guard until the
// next Read: only then has the caller handled the bytes of the last Read.
func TestGuarded_ReaderHoldsGuardUntilNextRead(t *testing.T) {
	c, s := claim{t, "docs/internals/core.md#semantic-7"}, ctxshutdown.New(t.Context())
	r := ctxshutdown.NewReader(s, strings.NewReader("0123456789"), ctxshutdown.Guarded())
	r.Read(make([]byte, 5))
	done := s.Shutdown()
	c.checkState(s, ctxshutdown.ShuttingDown, 1)
	c.isTrue("the scope is not complete before the next Read", !isResolved(done))
	wantResult(t, "the next Read", atEOF, readOnce(r))
	c.awaitCompletion(done)
}

func TestGuarded_ReportNamesLineOfConstructorCall(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithTrace())
	sites := map[string]string{}
	site := func(name, want string) {
		sites[name] = want
		testkit.Equal(t, name, s.GuardReport().Entries()[0].Site, want)
	}
	r := ctxshutdown.NewReader(s, strings.NewReader(""), ctxshutdown.Guarded())
	site("Reader", lineAbove())
	r.Close()
	d := ctxshutdown.NewReader(s.Work(), strings.NewReader(""), ctxshutdown.Guarded(), ctxshutdown.Detached())
	site("detached Reader", lineAbove())
	d.Close()
	w := ctxshutdown.NewWriter(request{s, "r"}, io.Discard, ctxshutdown.Guarded())
	site("Writer", lineAbove())
	w.Close()
	ln := ctxshutdown.NewListener(s, listen(t, "tcp"), ctxshutdown.Guarded())
	site("listener", lineAbove())
	ln.Close()
	if n := s.GuardCount(); n != 0 || len(sites) != 4 {
		t.Errorf("%d guards are held after the end", n)
	}
}

// Several goroutines end the same interrupt at the same time. The test fails if its guard is never
// released. If it were released twice, the second release would panic: see
// TestGuard_CountStaysRightAfterUseOfReleasedGuard.
func TestGuarded_ReleasesGuardOnce(t *testing.T) {
	for range 200 {
		s := ctxshutdown.New(t.Context())
		client, conn := net.Pipe()
		r := ctxshutdown.NewReader(s, conn, ctxshutdown.Guarded())
		w := ctxshutdown.NewWriter(s, conn, ctxshutdown.Guarded())
		ln := ctxshutdown.NewListener(s, newFakeListener(), ctxshutdown.Guarded())
		var racing sync.WaitGroup
		for _, end := range []func(){
			func() { r.Close() }, func() { r.Close() },
			func() { readOnce(r) }, func() { readOnce(r) },
			func() { w.Close() }, func() { w.Close() },
			func() { w.Write(nil) },
			func() { ln.Close() }, func() { ln.Close() },
			func() { ln.Accept() },
			func() { s.Shutdown() },
			func() { client.Close() },
		} {
			racing.Go(end)
		}
		racing.Wait()
		claim{t, "docs/internals/core.md#semantic-7"}.checkState(s, ctxshutdown.Complete, 0)
	}
}

// A Reader, Writer or listener unregisters from its context when it is closed, returns an error or
// reaches the end of its source. Otherwise a context that lives as long as the program would keep
// it in memory. Seq, Recv and Send, a Read of a detached Reader, and a Write on a soft context
// leave nothing registered when they return.
func TestInterrupts_UnregisterFromContextWhenClosedOrFailed(t *testing.T) {
	closedConn := func(t *testing.T) net.Conn {
		client, conn := net.Pipe()
		client.Close()
		return conn
	}
	for name, use := range map[string]func(t *testing.T, ctx *manual){
		"Reader that was not read": func(t *testing.T, ctx *manual) { ctxshutdown.NewReader(ctx, closedConn(t)) },
		"Reader at its end": func(t *testing.T, ctx *manual) {
			wantResult(t, "Read", atEOF, readOnce(ctxshutdown.NewReader(ctx, closedConn(t))))
		},
		"Reader at its end, by io.Copy": func(t *testing.T, ctx *manual) {
			io.Copy(io.Discard, ctxshutdown.NewReader(ctx, closedConn(t)))
		},
		"Reader at an error": func(t *testing.T, ctx *manual) {
			conn := closedConn(t)
			conn.Close()
			readOnce(ctxshutdown.NewReader(ctx, conn))
		},
		"Reader at an error, by io.Copy": func(t *testing.T, ctx *manual) {
			conn := closedConn(t)
			conn.Close()
			io.Copy(io.Discard, ctxshutdown.NewReader(ctx, conn))
		},
		"Reader closed": func(t *testing.T, ctx *manual) {
			r := ctxshutdown.NewReader(ctx, fedPipe(t, "bytes"))
			wantResult(t, "Read", data("bytes"), readOnce(r))
			if ctx.registered() != 1 {
				t.Error("no registration is counted before the end, so the test is broken")
			}
			r.Close()
		},
		"Reader read after Close": func(t *testing.T, ctx *manual) {
			r := ctxshutdown.NewReader(ctx, fedPipe(t, "bytes"))
			r.Close()
			wantResult(t, "Read", result{Err: os.ErrClosed}, readOnce(r))
		},
		"Reader closed during a Read": func(t *testing.T, ctx *manual) {
			_, conn := net.Pipe()
			r := ctxshutdown.NewReader(ctx, conn)
			got := reading(r)
			awaitState(t, "readOnce", "select")
			r.Close()
			await(t, got)
		},
		"Reader closed during a Read that cannot be woken": func(t *testing.T, ctx *manual) {
			src, w := unwakeable()
			r := ctxshutdown.NewReader(ctx, refusing{src})
			got := reading(r)
			awaitState(t, "readOnce", "select")
			r.Close()
			io.WriteString(w, "bytes")
			wantResult(t, "Read", data("bytes"), await(t, got))
		},
		"detached Reader, before its end": func(t *testing.T, ctx *manual) {
			r := ctxshutdown.NewReader(ctx, strings.NewReader("bytes"), ctxshutdown.Detached())
			wantResult(t, "Read", data("bytes"), readOnce(r))
		},
		"soft Writer": func(t *testing.T, ctx *manual) {
			client, conn := net.Pipe()
			got := writing(ctxshutdown.NewWriter(ctx, conn), "bytes")
			wantResult(t, "the other end", data("bytes"), readOnce(client))
			wantResult(t, "Write", result{N: 5}, await(t, got))
		},
		"listener closed": func(t *testing.T, ctx *manual) {
			ln := ctxshutdown.NewListener(ctx, newFakeListener())
			if ctx.registered() != 1 {
				t.Error("no registration is counted before the end, so the test is broken")
			}
			ln.Close()
		},
		"Seq": func(t *testing.T, ctx *manual) {
			for range ctxshutdown.Seq(ctx, endless) {
				break
			}
		},
		"Recv and Send": func(t *testing.T, ctx *manual) {
			ch := make(chan int, 1)
			ctxshutdown.Send(ctx, ch, 1)
			ctxshutdown.Recv(ctx, ch)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := newManual(t.Context())
			use(t, ctx)
			if n := ctx.registered(); n != 0 {
				t.Errorf("%d functions are still registered with the context", n)
			}
		})
	}
	hard := func(t *testing.T) *manual { return newManual(ctxshutdown.New(t.Context()).Work()) }
	for name, use := range map[string]func(t *testing.T, ctx *manual){
		"closed": func(t *testing.T, ctx *manual) {
			client, conn := net.Pipe()
			go io.Copy(io.Discard, client)
			defer client.Close()
			w := ctxshutdown.NewWriter(ctx, conn)
			io.WriteString(w, "bytes")
			if ctx.registered() != 1 {
				t.Error("no registration is counted before the end, so the test is broken")
			}
			w.Close()
		},
		"at an error": func(t *testing.T, ctx *manual) { io.WriteString(ctxshutdown.NewWriter(ctx, closedConn(t)), "bytes") },
		"at an error, from a file": func(t *testing.T, ctx *manual) {
			conn, other := connections(t, "tcp")
			defer other.Close()
			conn.Close()
			if _, err := io.Copy(ctxshutdown.NewWriter(ctx, conn), file(t, "bytes")); err == nil {
				t.Error("the copy returns no error")
			}
		},
		"closed while it writes": func(t *testing.T, ctx *manual) {
			client, conn := net.Pipe()
			w := ctxshutdown.NewWriter(ctx, conn)
			got := writing(w, "bytes")
			awaitState(t, "writeOnce", "select")
			w.Close()
			wantResult(t, "the other end", data("bytes"), readOnce(client))
			wantResult(t, "Write", result{N: 5}, await(t, got))
		},
	} {
		t.Run("hard Writer "+name, func(t *testing.T) {
			ctx := hard(t)
			use(t, ctx)
			if n := ctx.registered(); n != 0 {
				t.Errorf("%d functions are still registered with the context", n)
			}
		})
	}
}

// After a Reader has ended or is closed, the garbage collector frees it and its buffers.
func TestReader_IsGarbageCollectedAfterItsEnd(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	for name, end := range map[string]func(r *ctxshutdown.Reader){
		"at its end": func(r *ctxshutdown.Reader) { io.Copy(io.Discard, r) },
		"closed":     func(r *ctxshutdown.Reader) { readOnce(r); r.Close() },
	} {
		forget := func() weak.Pointer[ctxshutdown.Reader] {
			r := ctxshutdown.NewReader(s, fedPipe(t, "bytes"), ctxshutdown.Guarded())
			end(r)
			return weak.Make(r)
		}
		if !isCollected(forget()) {
			t.Errorf("Reader %s: the scope keeps it in memory", name)
		}
	}
}

// refusing is a reader whose method SetReadDeadline returns an error.
type refusing struct{ io.Reader }

func (refusing) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }
