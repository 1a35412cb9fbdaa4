package grpcdrain_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type key string

// fakeStream is a stream whose context is all that matters.
type fakeStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (f fakeStream) Context() context.Context { return f.ctx }

// both runs a handler through either interceptor: what they promise is the same.
func both(t *testing.T, check func(t *testing.T, call func(s *ctxshutdown.Swansong, client context.Context, h func(context.Context) error) error)) {
	const method = "/test.Service/Method"
	t.Run("unary", func(t *testing.T) {
		check(t, func(s *ctxshutdown.Swansong, client context.Context, h func(context.Context) error) error {
			_, err := grpcdrain.UnaryServerInterceptor(s)(client, nil, &grpc.UnaryServerInfo{FullMethod: method},
				func(ctx context.Context, _ any) (any, error) { return nil, h(ctx) })
			return err
		})
	})
	t.Run("stream", func(t *testing.T) {
		check(t, func(s *ctxshutdown.Swansong, client context.Context, h func(context.Context) error) error {
			return grpcdrain.StreamServerInterceptor(s)(nil, fakeStream{ctx: client}, &grpc.StreamServerInfo{FullMethod: method},
				func(_ any, stream grpc.ServerStream) error { return h(stream.Context()) })
		})
	})
}

// bothInABubble is both where it matters that something does not happen.
func bothInABubble(t *testing.T, check func(t *testing.T, call func(s *ctxshutdown.Swansong, client context.Context, h func(context.Context) error) error)) {
	both(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
		synctest.Test(t, func(t *testing.T) { check(t, call) })
	})
}

func TestCallIsAGuardNamedAfterItsMethod(t *testing.T) {
	both(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
		s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("grpc"))
		err := call(s, t.Context(), func(ctx context.Context) error {
			equal(t, "report during the call", s.GuardReport().String(), "1 guard: grpc/test.Service/Method ×1")
			return nil
		})
		equal(t, "error", err, nil)
		equal(t, "guards after the call", s.GuardCount(), 0)
	})
}

func TestContextOfACall(t *testing.T) {
	errCause := errors.New("the cause")
	type view struct{ Scope, Handler, Work error }
	see := func(ctx context.Context) view {
		scope, _ := ctxshutdown.FromContext(ctx)
		return view{context.Cause(scope), context.Cause(ctx), context.Cause(ctxshutdown.Work(ctx))}
	}
	for _, step := range []struct {
		name string
		end  func(s *ctxshutdown.Swansong, client context.CancelFunc)
		want view
	}{
		{"goes on", func(*ctxshutdown.Swansong, context.CancelFunc) {}, view{}},
		{"stop", func(s *ctxshutdown.Swansong, _ context.CancelFunc) { s.ShutdownCause(errCause) }, view{Scope: errCause}},
		{"client leaves", func(_ *ctxshutdown.Swansong, client context.CancelFunc) { client() }, view{Handler: context.Canceled}},
		{"force", func(s *ctxshutdown.Swansong, _ context.CancelFunc) { s.Shutdown(); s.Force(errCause) },
			view{Scope: ctxshutdown.ErrShutdown, Handler: errCause, Work: errCause}},
	} {
		t.Run(step.name, func(t *testing.T) {
			bothInABubble(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
				s := ctxshutdown.New(context.WithValue(t.Context(), key("both"), "program"))
				client, leave := context.WithCancel(context.WithValue(t.Context(), key("both"), "call"))
				defer leave()
				_ = call(s, client, func(ctx context.Context) error {
					derived, cancel := context.WithCancel(ctx)
					defer cancel()
					step.end(s, leave)
					synctest.Wait() // whatever ends with it has ended
					equal(t, "what derives from the context", derived.Err() != nil, step.want.Handler != nil)
					if diff := cmp.Diff(step.want, see(ctx), cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" {
						t.Errorf("what the handler sees (-want +got):\n%s", diff)
					}
					_, admitted := ctxshutdown.Acquire(ctx)
					equal(t, "acquires", admitted, step.want.Handler == nil)
					equal(t, "the value that both have", ctx.Value(key("both")), any("call"))
					return nil
				})
			})
		})
	}
}

// What comes in may carry a scope of somebody else's: an HTTP server's that grpc serves within, or an interceptor's before
// this one. That of the call is nearer, and it is the one whose stop the handler hears of.
func TestTheScopeOfTheCallIsNearest(t *testing.T) {
	for name, incoming := range map[string]func(other *ctxshutdown.Swansong) context.Context{
		"soft tier of another": func(other *ctxshutdown.Swansong) context.Context { return other },
		"hard tier of another": func(other *ctxshutdown.Swansong) context.Context { return other.Work() },
		"below another":        func(other *ctxshutdown.Swansong) context.Context { return context.WithValue(other, key("v"), "v") },
	} {
		t.Run(name, func(t *testing.T) {
			bothInABubble(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
				other := ctxshutdown.New(t.Context(), ctxshutdown.WithName("http"))
				s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("grpc"))
				client := context.WithValue(incoming(other), key("jobs"), other)
				_ = call(s, client, func(ctx context.Context) error {
					scope, _ := ctxshutdown.FromContext(ctx)
					equal(t, "scope", scope.String(), "Swansong(grpc/test.Service/Method)")
					equal(t, "a scope that is a value", ctx.Value(key("jobs")) == any(other), true)
					equal(t, "a value of the call's", ctx.Value(key("v")) != nil, name == "below another")
					equal(t, "no value", ctx.Value(key("none")), nil)

					s.Shutdown()
					equal(t, "the stop", scope.Err(), context.Canceled)
					equal(t, "the stop, in the context", ctx.Err(), nil)
					equal(t, "the stop, in Work", ctxshutdown.Work(ctx).Err(), nil)

					// What has begun is written to its end: the context of a call is on the hard tier.
					out, in := net.Pipe()
					written := make(chan error, 1)
					go func() {
						_, err := ctxshutdown.NewWriter(ctx, out).Write([]byte("in two pieces"))
						written <- err
					}()
					synctest.Wait()
					s.Force(nil)
					other.Force(nil) // and what came in, too, where it is another's hard tier
					equal(t, "a write that nobody reads is cut", errors.Is(<-written, ctxshutdown.ErrForced), true)
					in.Close()
					return nil
				})
			})
		})
	}
	t.Run("two interceptors", func(t *testing.T) {
		bothInABubble(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
			outer := ctxshutdown.New(t.Context(), ctxshutdown.WithName("outer"))
			inner := ctxshutdown.New(t.Context(), ctxshutdown.WithName("inner"))
			_ = call(outer, t.Context(), func(ctx context.Context) error {
				return call(inner, ctx, func(ctx context.Context) error {
					scope, _ := ctxshutdown.FromContext(ctx)
					equal(t, "scope", scope.String(), "Swansong(inner/test.Service/Method)")
					outer.Force(nil)
					synctest.Wait()
					equal(t, "cut by the outer one", context.Cause(ctx), error(ctxshutdown.ErrForced))
					return nil
				})
			})
		})
	})
}

func TestRefusedAfterTheForceOnly(t *testing.T) {
	both(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
		s := ctxshutdown.New(t.Context())
		g := s.Guard() // Serve's
		defer g.Release()
		s.Shutdown()
		ran := false
		run := func(context.Context) error { ran = true; return nil }
		equal(t, "begun before the client has read GOAWAY", call(s, t.Context(), run), nil)
		equal(t, "it ran", ran, true)

		ran = false
		s.Force(errors.New("too slow"))
		st := status.Convert(call(s, t.Context(), run))
		equal(t, "it ran after the force", ran, false)
		equal(t, "code", st.Code(), codes.Unavailable)
		equal(t, "message", st.Message(), "the server shuts down and has not begun this call: too slow")
		var delay time.Duration
		for _, d := range st.Details() {
			if info, ok := d.(*errdetails.RetryInfo); ok {
				delay = info.GetRetryDelay().AsDuration()
			}
		}
		equal(t, "told to try again after", delay, 100*time.Millisecond)
		equal(t, "guards", s.GuardCount(), 1)
	})
}

func TestCutHandlerAnswersUnavailable(t *testing.T) {
	errOther := status.Error(codes.DataLoss, "something else")
	for _, c := range []struct {
		name string
		err  func(ctx context.Context) error
		want codes.Code
	}{
		{"Err", func(ctx context.Context) error { return ctx.Err() }, codes.Unavailable},
		{"Cause", func(ctx context.Context) error { return context.Cause(ctx) }, codes.Unavailable},
		{"Canceled", func(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }, codes.Unavailable},
		{"another error", func(context.Context) error { return errOther }, codes.DataLoss},
		{"none", func(context.Context) error { return nil }, codes.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
				s := ctxshutdown.New(t.Context())
				err := call(s, t.Context(), func(ctx context.Context) error {
					s.Force(errors.New("too slow"))
					<-ctx.Done()
					return c.err(ctx)
				})
				equal(t, "code", status.Code(err), c.want)
			})
		})
	}
	t.Run("the client left", func(t *testing.T) {
		both(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
			s := ctxshutdown.New(t.Context())
			client, leave := context.WithCancel(t.Context())
			err := call(s, client, func(ctx context.Context) error {
				leave()
				<-ctx.Done()
				s.Force(nil)
				return ctx.Err()
			})
			equal(t, "the handler's own error", err, context.Canceled)
		})
	})
}

func TestPanicPassesThrough(t *testing.T) {
	both(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
		s := ctxshutdown.New(t.Context())
		func() {
			defer func() { equal(t, "recovered", recover(), any("boom")) }()
			_ = call(s, t.Context(), func(context.Context) error { panic("boom") })
		}()
		equal(t, "guards", s.GuardCount(), 0)
		s.Shutdown()
		equal(t, "state", s.State(), ctxshutdown.Complete)
	})
}

func TestEndAtStop(t *testing.T) {
	for method, ends := range map[string]bool{
		"/test.Service/Watch":          true,
		"/test.Service/Other":          false,
		"/grpc.health.v1.Health/Watch": true,
		"/grpc.health.v1.Health/Check": false,
		"/other.Health/Watch":          false,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			intercept := grpcdrain.StreamServerInterceptor(s, nil, grpcdrain.EndAtStop("/test.Service/Watch"))
			err := intercept(nil, fakeStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: method},
				func(_ any, stream grpc.ServerStream) error {
					s.Shutdown()
					synctest.Wait()
					if stream.Context().Err() == nil {
						return nil
					}
					return status.Error(codes.Canceled, "Stream has ended.")
				})
			want := codes.OK
			if ends {
				want = codes.Unavailable
			}
			equal(t, method, status.Code(err), want)
		})
	}
}

// What was received ahead when the stop comes is delivered, whichever of the two the loop looks at first, and nothing is
// received after it. Many times, since chance has a say where both are there.
func TestMessagesReceivedAheadAreDelivered(t *testing.T) {
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			stream := &numbers{ctx: s, next: make(chan int, 3)}
			stream.next <- 1
			stream.next <- 2
			stream.next <- 3
			var got []int
			for n, err := range grpcdrain.Messages(stream) {
				equal(t, "error", err, nil)
				if got = append(got, n); n == 1 {
					synctest.Wait() // the second is there
					s.Shutdown()
				}
			}
			equal(t, "delivered", got, []int{1, 2})
			synctest.Wait()
			equal(t, "not received", len(stream.next), 1)
		})
		if t.Failed() {
			return
		}
	}
}

// A stream of numbers.
type numbers struct {
	ctx  context.Context
	next chan int
}

func (n *numbers) Context() context.Context { return n.ctx }

func (n *numbers) Recv() (int, error) { return <-n.next, nil }

func TestBadInputOfInterceptors(t *testing.T) {
	panics := func(want string, f func()) {
		t.Helper()
		defer func() { t.Helper(); equal(t, "panic", recover(), any(want)) }()
		f()
	}
	panics("grpcdrain: UnaryServerInterceptor of a nil scope", func() { grpcdrain.UnaryServerInterceptor(nil) })
	panics("grpcdrain: StreamServerInterceptor of a nil scope", func() { grpcdrain.StreamServerInterceptor(nil) })
	panics("grpcdrain: Messages of a nil stream", func() { grpcdrain.Messages[int](nil) })
	for _, bad := range []string{"", "Watch", "/Watch", "service/Watch", "/service/", "//Watch"} {
		panics(`grpcdrain: EndAtStop("`+bad+`"): a method is written as in "/package.Service/Method"`, func() { grpcdrain.EndAtStop(bad) })
	}
}
