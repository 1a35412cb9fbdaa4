package ctxshutdown_test

import (
	"context"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// Whoever has seen a context end finds that every interrupt of it has ended, however the end came about, and however
// little the interrupts look at it.
func TestInterrupts_EndNoLaterThanTheirContext(t *testing.T) {
	const rounds = 50
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
				for range ctxshutdown.Seq(ctx, forEver) {
					// Until it ends by itself.
				}
				if ctx.Err() == nil {
					t.Fatal("a sequence has ended, and its context has not")
				}
				ctx, end = make()
				for range 1000 { // package context tells them after it has closed Done: a long moment
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
				for range ctxshutdown.Seq(ctx, forEver) {
					t.Fatal("after the end, an element")
				}
			}
		})
	}
}

// A scope is not lost sight of from above, whether it holds a guard, has held one, or never will, and whoever comes and goes.
func TestInterrupts_EndWhoeverComesAndGoes(t *testing.T) {
	for name, idle := range map[string]func(s *ctxshutdown.Swansong) (release func()){
		"held a guard": func(s *ctxshutdown.Swansong) func() { return s.Guard().Release },
		"held none":    func(*ctxshutdown.Swansong) func() { return func() {} },
	} {
		root := ctxshutdown.New(context.Background())
		s := child(root)
		release := idle(s)
		r := ctxshutdown.NewReader(s, zeros{})
		elements := 0
		for range ctxshutdown.Seq(s, forEver) {
			switch elements++; elements {
			case 1:
				release()
				others(root)
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

// The same where all of it happens at once: whoever has seen a scope end gets no further element of it.
func TestStress_InterruptsEndNoLaterThanTheirContext(t *testing.T) {
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
				for range 20 { // early enough to find it running, and late enough not to
					seen := false
					for range ctxshutdown.Seq(s, forEver) {
						if seen {
							t.Error("an element of a scope that has been seen to have ended")
							return
						}
						if seen = s.Err() != nil; !seen {
							break
						}
					}
				}
			})
		}
		for range 2 { // often of the same scope
			s := line[r.IntN(2)]
			wg.Go(func() { s.Shutdown() })
		}
		wg.Wait()
		line[0].Shutdown()
	}
}

// others come, enough of them for whoever keeps lists of them to look which are still needed. Every other one stays.
func others(parent *ctxshutdown.Swansong) {
	for i := range 200 {
		s, cancel := ctxshutdown.WithCancel(parent)
		s.Guard()
		once(s)
		if i%2 == 0 {
			cancel()
		}
	}
}

// once looks at ctx by a sequence and by a Reader, which is not closed.
func once(ctx context.Context) {
	for range ctxshutdown.Seq(ctx, forEver) {
		break
	}
	readOnce(ctxshutdown.NewReader(ctx, zeros{}))
}

// A parent that lives long keeps nothing of the interrupts of its children, once those have been stopped.
func TestInterrupts_LeaveNothingWithTheParent(t *testing.T) {
	root := ctxshutdown.New(context.Background())
	defer root.Shutdown()
	const many, each = 50_000, 8 // bytes; a flag that stays takes fifty
	before := heap()
	for range many {
		s, cancel := ctxshutdown.WithCancel(root)
		once(s)
		once(child(s))
		cancel()
	}
	if grown := heap() - before; grown > many*each {
		t.Errorf("%d children have come and gone, and left %d bytes", many, grown)
	}
}

// heap returns how many bytes are alive.
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

func forEver(yield func(struct{}) bool) {
	for yield(struct{}{}) {
	}
}

// Whoever has seen a scope's own Done closed is refused, and gets no element, also while package context still tells those
// below.
func TestStop_RefusesWhoHasSeenIt(t *testing.T) {
	for round := range 50 {
		root := ctxshutdown.New(context.Background())
		s := root
		for range round % 2 * 3 { // every other time, three scopes down
			s, _ = ctxshutdown.WithCancel(s)
		}
		g := s.Guard() // known above
		for range 1000 {
			owned(t)(context.WithCancel(s))
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			root.Shutdown()
		}()
		<-s.Done()
		if g, ok := s.TryGuard(); ok {
			t.Errorf("a stopped scope admits: %v", s.GuardReport())
			g.Release()
		}
		for range ctxshutdown.Seq(s, forEver) {
			t.Error("a stopped scope iterates")
			break
		}
		g.Release()
		<-stopped
	}
}

// Nobody warns of the end of a context that a scope derives from, be it above a root or between two scopes.
func TestTryGuard_RefusesWhoseContextHasEnded(t *testing.T) {
	root := ctxshutdown.New(context.Background())
	defer root.Shutdown()
	for name, from := range map[string]func(context.Context) *ctxshutdown.Swansong{
		"root":  func(ctx context.Context) *ctxshutdown.Swansong { return ctxshutdown.New(ctx) },
		"child": func(ctx context.Context) *ctxshutdown.Swansong { s, _ := ctxshutdown.WithCancel(ctx); return s },
		"grandchild": func(ctx context.Context) *ctxshutdown.Swansong {
			s, _ := ctxshutdown.WithCancel(ctx)
			s, _ = ctxshutdown.WithCancel(s)
			return s
		},
	} {
		ctx, cancel := context.WithCancel(root)
		if name == "root" {
			ctx, cancel = context.WithCancel(context.Background())
		}
		s := from(ctx)
		first, ok := s.TryGuard()
		second, ok2 := s.TryGuard() // of a scope that is known above
		if !ok || !ok2 {
			t.Errorf("%s: a running scope refuses", name)
		}
		cancel()
		if g, ok := s.TryGuard(); ok {
			t.Errorf("%s: admitted although its context has ended", name)
			g.Release()
		}
		first.Release()
		second.Release()
		s.Shutdown()
	}
}
