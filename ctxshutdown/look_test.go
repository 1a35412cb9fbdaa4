package ctxshutdown_test

import (
	"context"
	"io"
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

// A scope that no longer holds a guard may be out of sight from above, and its interrupts end all the same.
func TestInterrupts_EndWhereTheirScopeIsForgotten(t *testing.T) {
	root := ctxshutdown.New(context.Background())
	s := child(root)
	g := s.Guard()
	r := ctxshutdown.NewReader(s, zeros{})
	elements := 0
	for range ctxshutdown.Seq(s, forEver) {
		switch elements++; elements {
		case 1:
			g.Release()
			for range 100 { // others come
				other := child(root)
				defer other.Guard().Release()
			}
		case 2:
			root.Shutdown()
		default:
			t.Fatal("after the end, an element")
		}
	}
	if n, err := r.Read(buffer[:]); n != 0 || err != io.EOF {
		t.Errorf("after the end, Read: %d, %v", n, err)
	}
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
