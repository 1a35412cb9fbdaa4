package ctxshutdown_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// After a context has ended, for whatever reason, its interrupts end: a sequence yields no element,
// Read returns io.EOF, and Write refuses to write.
func TestInterrupts_ReadWriteAndSeqEndWhenContextEnds(t *testing.T) {
	const rounds = 15
	for name, make := range map[string]func() (ctx context.Context, end func()){
		"root": func() (context.Context, func()) {
			s := ctxshutdown.New(context.Background())
			return s, func() { s.Shutdown() }
		},
		"root, by Force": func() (context.Context, func()) {
			s := ctxshutdown.New(context.Background())
			return s, func() { s.Force(nil) }
		},
		"root under a context": func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(context.Background())
			return ctxshutdown.New(ctx), cancel
		},
		"child, by its cancel": func() (context.Context, func()) {
			s, cancel := ctxshutdown.WithCancel(ctxshutdown.New(context.Background()))
			return s, cancel
		},
		"child, by its parent": func() (context.Context, func()) {
			root := ctxshutdown.New(context.Background())
			return child(root), func() { root.Shutdown() }
		},
		"grandchild, by its root": func() (context.Context, func()) {
			root := ctxshutdown.New(context.Background())
			return child(child(root)), func() { root.Shutdown() }
		},
		"grandchild, by its parent": func() (context.Context, func()) {
			s, cancel := ctxshutdown.WithCancel(ctxshutdown.New(context.Background()))
			return child(s), cancel
		},
		"grandchild, by Force of the root": func() (context.Context, func()) {
			root := ctxshutdown.New(context.Background())
			return child(child(root)), func() { root.Force(nil) }
		},
		"child, below a context": func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctxshutdown.New(context.Background()))
			return child(ctx), cancel
		},
		"child, below a root under a context": func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(context.Background())
			return child(ctxshutdown.New(ctx)), cancel
		},
		"child with a guard, by its cancel": func() (context.Context, func()) {
			s, cancel := ctxshutdown.WithCancel(ctxshutdown.New(context.Background()))
			s.Guard()
			return s, cancel
		},
		"child with a guard, by its parent": func() (context.Context, func()) {
			root := ctxshutdown.New(context.Background())
			s := child(root)
			s.Guard()
			return s, func() { root.Shutdown() }
		},
		"grandchild with a guard, by Force of the root": func() (context.Context, func()) {
			root := ctxshutdown.New(context.Background())
			s := child(child(root))
			s.Guard()
			return s, func() { root.Force(nil) }
		},
		"child with a guard, below a context": func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctxshutdown.New(context.Background()))
			s := child(ctx)
			s.Guard()
			return s, cancel
		},
		"child with a guard, below a root under a context": func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(context.Background())
			s := child(ctxshutdown.New(ctx))
			s.Guard()
			return s, cancel
		},
		"Work, by Force": func() (context.Context, func()) {
			s := ctxshutdown.New(context.Background())
			return s.Work(), func() { s.Force(nil) }
		},
		"Work, by completion": func() (context.Context, func()) {
			s := ctxshutdown.New(context.Background())
			return s.Work(), func() { s.Shutdown() }
		},
		"child of Work": func() (context.Context, func()) {
			s := ctxshutdown.New(context.Background())
			return child(s.Work()), func() { s.Force(nil) }
		},
		"child with a value": func() (context.Context, func()) {
			s, cancel := ctxshutdown.WithCancel(ctxshutdown.New(context.Background()))
			return context.WithValue(s, key("k"), 1), cancel
		},
		"Work with a value": func() (context.Context, func()) {
			s := ctxshutdown.New(context.Background())
			return context.WithValue(s.Work(), key("k"), 1), func() { s.Force(nil) }
		},
		"child below a value, by its root": func() (context.Context, func()) {
			root := ctxshutdown.New(context.Background())
			return child(context.WithValue(child(root), key("k"), 1)), func() { root.Shutdown() }
		},
		"child of Work, by completion": func() (context.Context, func()) {
			s := ctxshutdown.New(context.Background())
			return child(s.Work()), func() { s.Shutdown() }
		},
		"grandchild of Work with a value, by Force of the root": func() (context.Context, func()) {
			root := ctxshutdown.New(context.Background())
			return child(child(context.WithValue(child(root).Work(), key("k"), 1))), func() { root.Force(nil) }
		},
		"child of WithoutCancel, by its cancel": func() (context.Context, func()) {
			return ctxshutdown.WithCancel(context.WithoutCancel(ctxshutdown.New(context.Background())))
		},
		"std, of a child": func() (context.Context, func()) {
			return context.WithCancel(child(ctxshutdown.New(context.Background())))
		},
		"std, of a Work": func() (context.Context, func()) {
			return context.WithCancel(ctxshutdown.New(context.Background()).Work())
		},
		"std": func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(context.Background())
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				ctx, end := make()
				r := ctxshutdown.NewReader(ctx, zeros{})
				if n, err := r.Read(buffer[:]); n != len(buffer) || err != nil {
					t.Fatalf("before the end: %d, %v", n, err)
				}
				go end()
				for range ctxshutdown.Seq(ctx, endless) {
					// runs until the sequence ends
				}
				if ctx.Err() == nil {
					t.Fatal("the sequence ended before its context")
				}
				ctx, end = make()
				// When ctx ends, package context first closes its Done channel and then cancels its
				// children. With a thousand children, the second step takes so long that the test
				// runs before its end.
				for range 1000 {
					owned(t)(context.WithCancel(ctx))
				}
				r, w := ctxshutdown.NewReader(ctx, zeros{}), ctxshutdown.NewWriter(ctx, io.Discard)
				go end()
				<-ctx.Done()
				if n, err := r.Read(buffer[:]); n != 0 || err != io.EOF || !r.Stopped() {
					t.Fatalf("after the end, Read: %d, %v", n, err)
				}
				if n, err := w.Write(buffer[:]); n != 0 || err == nil {
					t.Fatalf("after the end, Write: %d, %v", n, err)
				}
				for range ctxshutdown.Seq(ctx, endless) {
					t.Fatal("after the end, an element")
				}
			}
		})
	}
}

// When a root is stopped, the interrupts of its child end, whether or not the child has held a
// guard, and although many siblings of the child have been created and cancelled before.
func TestInterrupts_ReadAndSeqEndAtStopIfScopeHasManySiblings(t *testing.T) {
	for name, idle := range map[string]func(s *ctxshutdown.Swansong) (release func()){
		"held a guard": func(s *ctxshutdown.Swansong) func() { return s.Guard().Release },
		"held none":    func(*ctxshutdown.Swansong) func() { return func() {} },
	} {
		root := ctxshutdown.New(context.Background())
		s := child(root)
		release := idle(s)
		r := ctxshutdown.NewReader(s, zeros{})
		elements := 0
		for range ctxshutdown.Seq(s, endless) {
			switch elements++; elements {
			case 1:
				release()
				addSiblings(root)
			case 2:
				root.Shutdown()
			default:
				t.Fatalf("%s: after the end, an element", name)
			}
		}
		if n, err := r.Read(buffer[:]); n != 0 || err != io.EOF {
			t.Errorf("%s: after the end, Read: %d, %v", name, n, err)
		}
	}
}

// countingContext is a context that counts the calls of its method Err.
type countingContext struct {
	context.Context
	calls int
}

func (c *countingContext) Err() error {
	c.calls++
	return c.Context.Err()
}

// Err asks the parent of a scope at most. Otherwise an element of a loop, or a Read, would cost the
// more the deeper the scope is.
func TestErr_CostDoesNotGrowWithDepthOfScope(t *testing.T) {
	for name, derive := range map[string]func(context.Context) context.Context{
		"scopes":                     func(ctx context.Context) context.Context { return child(ctx) },
		"scopes with values between": func(ctx context.Context) context.Context { return context.WithValue(child(ctx), key("k"), 1) },
	} {
		above := &countingContext{Context: ctxshutdown.New(context.Background())}
		s := child(derive(derive(above)))
		for range 1000 {
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
		}
		if above.calls > 10 {
			t.Errorf("%s: 1000 calls of Err have asked a context far above %d times", name, above.calls)
		}
	}
}

// The error of a Writer has the cause of the context that was given to the Writer. Scopes that are
// stopped before a standard context was created for them share one closed Done channel. A Writer
// must not take the cause of such a scope for its own.
func TestWriter_ReturnsCauseOfItsContext(t *testing.T) {
	mine := errors.New("mine")
	s := child(ctxshutdown.New(context.Background()))
	for name, end := range map[string]func(){
		"a stopped scope": func() { s.Shutdown() },
		"a forced Work":   func() { s.Work(); s.Force(nil) },
	} {
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(s))
		cancel(mine)
		end()
		if _, err := ctxshutdown.NewWriter(ctx, io.Discard).Write(buffer[:]); !errors.Is(err, mine) {
			t.Errorf("together with %s: %v", name, err)
		}
	}
}

// Two goroutines stop scopes of a chain while others loop over Seq. Once a loop body has seen that
// Err of its scope is set, Seq must not yield a further element.
func TestStress_SeqYieldsNothingAfterContextEnds(t *testing.T) {
	rounds := 30_000
	if testing.Short() {
		rounds = 3000
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 0))
		line := []*ctxshutdown.Swansong{ctxshutdown.New(context.Background())}
		for range 3 {
			line = append(line, child(line[len(line)-1]))
		}
		var wg sync.WaitGroup
		for range 3 {
			s := line[r.IntN(len(line))]
			wg.Go(func() {
				for range 20 { // some of these loops over Seq begin before the stop, and some after it
					seen := false
					for range ctxshutdown.Seq(s, endless) {
						if seen {
							t.Error("Seq yields an element after Err of its scope was not nil")
							return
						}
						if seen = s.Err() != nil; !seen {
							break
						}
					}
				}
			})
		}
		for range 2 { // two goroutines, which in half of the rounds stop the same scope
			s := line[r.IntN(2)]
			wg.Go(func() { s.Shutdown() })
		}
		wg.Wait()
		line[0].Shutdown()
	}
}

// addSiblings creates so many children of parent that the list of children is swept several times.
// It cancels every other child.
func addSiblings(parent *ctxshutdown.Swansong) {
	for i := range 200 {
		s, cancel := ctxshutdown.WithCancel(parent)
		s.Guard()
		useOnce(s)
		if i%2 == 0 {
			cancel()
		}
	}
}

// useOnce reads one element of a sequence and one piece from a Reader with the context ctx. It does
// not close the Reader.
func useOnce(ctx context.Context) {
	for range ctxshutdown.Seq(ctx, endless) {
		break
	}
	readOnce(ctxshutdown.NewReader(ctx, zeros{}))
}

// The interrupts of a child use no memory after the child has been stopped, even if its parent runs
// on.
func TestInterrupts_ReadersAndLoopsOfStoppedChildUseNoMemory(t *testing.T) {
	root := ctxshutdown.New(context.Background())
	defer root.Shutdown()
	const many, each = 50_000, 8 // number of child scopes, and the bytes of memory that each may keep
	before := heap()
	for range many {
		s, cancel := ctxshutdown.WithCancel(root)
		useOnce(s)
		useOnce(child(s))
		cancel()
	}
	if grown := heap() - before; grown > many*each {
		t.Errorf("%d children were created and stopped, and %d bytes are still in use", many, grown)
	}
}

// heap returns the number of bytes in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

var buffer [16]byte

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func endless(yield func(struct{}) bool) {
	for yield(struct{}{}) {
	}
}
