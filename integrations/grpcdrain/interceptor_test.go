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
	"github.com/swansong-go/swansong/internal/testkit"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type key string

// fakeStream is a stream that has only a context.
type fakeStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (f fakeStream) Context() context.Context { return f.ctx }

// eachInterceptor runs check twice: with the unary and with the stream interceptor, which have the
// same contract.
func eachInterceptor(t *testing.T, check func(t *testing.T, call func(s *ctxshutdown.Swansong, client context.Context, h func(context.Context) error) error)) {
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

// bothInABubble is like both, but runs each check in a bubble of package synctest.
func bothInABubble(t *testing.T, check func(t *testing.T, call func(s *ctxshutdown.Swansong, client context.Context, h func(context.Context) error) error)) {
	eachInterceptor(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
		synctest.Test(t, func(t *testing.T) { check(t, call) })
	})
}

func TestInterceptors_NameGuardAfterMethod(t *testing.T) {
	eachInterceptor(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
		s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("grpc"))
		err := call(s, t.Context(), func(ctx context.Context) error {
			testkit.Equal(t, "report during the call", s.GuardReport().String(), "1 guard: grpc/test.Service/Method ×1")
			return nil
		})
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "guards after the call", s.GuardCount(), 0)
	})
}

func TestInterceptors_HandlerContextEndsAtForceNotAtStop(t *testing.T) {
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
		{"running", func(*ctxshutdown.Swansong, context.CancelFunc) {}, view{}},
		{"stop", func(s *ctxshutdown.Swansong, _ context.CancelFunc) { s.ShutdownCause(errCause) }, view{Scope: errCause}},
		{"client cancels", func(_ *ctxshutdown.Swansong, client context.CancelFunc) { client() }, view{Handler: context.Canceled}},
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
					synctest.Wait() // wait until all derived contexts are cancelled
					testkit.Equal(t, "a derived context has ended", derived.Err() != nil, step.want.Handler != nil)
					if diff := cmp.Diff(step.want, see(ctx), cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" {
						t.Errorf("causes in the handler (-want +got):\n%s", diff)
					}
					_, admitted := ctxshutdown.Acquire(ctx)
					testkit.Equal(t, "acquires", admitted, step.want.Handler == nil)
					testkit.Equal(t, "value for a key of both contexts", ctx.Value(key("both")), any("call"))
					return nil
				})
			})
		})
	}
}

// The context of a call may already carry another scope, of an HTTP server that contains grpc or of
// an earlier interceptor. In the handler, FromContext returns the scope of the call.
func TestInterceptors_FromContextReturnsScopeOfCall(t *testing.T) {
	for name, incoming := range map[string]func(other *ctxshutdown.Swansong) context.Context{
		"another scope":         func(other *ctxshutdown.Swansong) context.Context { return other },
		"Work of another scope": func(other *ctxshutdown.Swansong) context.Context { return other.Work() },
		"below another scope":   func(other *ctxshutdown.Swansong) context.Context { return context.WithValue(other, key("v"), "v") },
	} {
		t.Run(name, func(t *testing.T) {
			bothInABubble(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
				other := ctxshutdown.New(t.Context(), ctxshutdown.WithName("http"))
				s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("grpc"))
				client := context.WithValue(incoming(other), key("jobs"), other)
				_ = call(s, client, func(ctx context.Context) error {
					scope, _ := ctxshutdown.FromContext(ctx)
					testkit.Equal(t, "scope", scope.String(), "Swansong(grpc/test.Service/Method)")
					testkit.Equal(t, "a scope under the user's key", ctx.Value(key("jobs")) == any(other), true)
					testkit.Equal(t, "a value of the client's context", ctx.Value(key("v")) != nil, name == "below another scope")
					testkit.Equal(t, "no value", ctx.Value(key("none")), nil)

					s.Shutdown()
					testkit.ErrorIs(t, "scope after the stop", scope.Err(), context.Canceled)
					testkit.Equal(t, "context after the stop", ctx.Err(), nil)
					testkit.Equal(t, "Work after the stop", ctxshutdown.Work(ctx).Err(), nil)

					// Stopping the scope does not cancel the context of a call, but Force ends a
					// Write that blocks.
					out, in := net.Pipe()
					written := make(chan error, 1)
					go func() {
						_, err := ctxshutdown.NewWriter(ctx, out).Write([]byte("in two pieces"))
						written <- err
					}()
					synctest.Wait()
					s.Force(nil)
					other.Force(nil)
					testkit.Equal(t, "the blocked write ends", errors.Is(<-written, ctxshutdown.ErrForced), true)
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
					testkit.Equal(t, "scope", scope.String(), "Swansong(inner/test.Service/Method)")
					outer.Force(nil)
					synctest.Wait()
					testkit.ErrorIs(t, "cause of the outer force", context.Cause(ctx), ctxshutdown.ErrForced)
					return nil
				})
			})
		})
	})
}

func TestInterceptors_RefuseCallsAfterForce(t *testing.T) {
	eachInterceptor(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
		s := ctxshutdown.New(t.Context())
		g := s.Guard() // in a program, Serve holds this guard
		defer g.Release()
		s.Shutdown()
		ran := false
		run := func(context.Context) error { ran = true; return nil }
		testkit.Equal(t, "a call after the stop", call(s, t.Context(), run), nil)
		testkit.Equal(t, "the handler ran", ran, true)

		ran = false
		s.Force(errors.New("too slow"))
		st := status.Convert(call(s, t.Context(), run))
		testkit.Equal(t, "the handler ran after the force", ran, false)
		testkit.Equal(t, "code", st.Code(), codes.Unavailable)
		testkit.Equal(t, "message", st.Message(), "the server is shutting down and has not begun this call: too slow")
		var delay time.Duration
		for _, d := range st.Details() {
			if info, ok := d.(*errdetails.RetryInfo); ok {
				delay = info.GetRetryDelay().AsDuration()
			}
		}
		testkit.Equal(t, "retry delay", delay, 100*time.Millisecond)
		testkit.Equal(t, "guards", s.GuardCount(), 1)
	})
}

func TestInterceptors_ReplaceHandlerErrorAfterForce(t *testing.T) {
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
			eachInterceptor(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
				s := ctxshutdown.New(t.Context())
				err := call(s, t.Context(), func(ctx context.Context) error {
					s.Force(errors.New("too slow"))
					<-ctx.Done()
					return c.err(ctx)
				})
				testkit.Equal(t, "code", status.Code(err), c.want)
			})
		})
	}
	t.Run("the client cancelled", func(t *testing.T) {
		eachInterceptor(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
			s := ctxshutdown.New(t.Context())
			client, leave := context.WithCancel(t.Context())
			err := call(s, client, func(ctx context.Context) error {
				leave()
				<-ctx.Done()
				s.Force(nil)
				return ctx.Err()
			})
			testkit.ErrorIs(t, "the handler's own error", err, context.Canceled)
		})
	})
}

func TestInterceptors_ReleaseGuardAfterPanic(t *testing.T) {
	eachInterceptor(t, func(t *testing.T, call func(*ctxshutdown.Swansong, context.Context, func(context.Context) error) error) {
		s := ctxshutdown.New(t.Context())
		func() {
			defer func() { testkit.Equal(t, "recovered", recover(), any("boom")) }()
			_ = call(s, t.Context(), func(context.Context) error { panic("boom") })
		}()
		testkit.Equal(t, "guards", s.GuardCount(), 0)
		s.Shutdown()
		testkit.Equal(t, "state", s.State(), ctxshutdown.Complete)
	})
}

func TestEndAtStop_EndsStreamAtStop(t *testing.T) {
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
			testkit.Equal(t, method, status.Code(err), want)
		})
	}
}

// A message that was received before the stop is delivered, and no message is received after it.
// The test is repeated, because select chooses at random between the message and the stop.
func TestMessages_DeliversMessageReceivedBeforeStop(t *testing.T) {
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			stream := &numbers{ctx: s, next: make(chan int, 3)}
			stream.next <- 1
			stream.next <- 2
			stream.next <- 3
			var got []int
			for n, err := range grpcdrain.Messages(stream) {
				testkit.Equal(t, "error", err, nil)
				if got = append(got, n); n == 1 {
					synctest.Wait() // the second message was received
					s.Shutdown()
				}
			}
			testkit.Equal(t, "delivered", got, []int{1, 2})
			synctest.Wait()
			testkit.Equal(t, "messages left in the stream", len(stream.next), 1)
		})
		if t.Failed() {
			return
		}
	}
}

// numbers is a stream of numbers.
type numbers struct {
	ctx  context.Context
	next chan int
}

func (n *numbers) Context() context.Context { return n.ctx }

func (n *numbers) Recv() (int, error) { return <-n.next, nil }

func TestInterceptors_RejectInvalidArguments(t *testing.T) {
	panics := func(want string, f func()) {
		t.Helper()
		defer func() { t.Helper(); testkit.Equal(t, "panic", recover(), any(want)) }()
		f()
	}
	panics("grpcdrain: UnaryServerInterceptor: nil scope; create one with ctxshutdown.New", func() { grpcdrain.UnaryServerInterceptor(nil) })
	panics("grpcdrain: StreamServerInterceptor: nil scope; create one with ctxshutdown.New", func() { grpcdrain.StreamServerInterceptor(nil) })
	panics("grpcdrain: Messages: nil stream; pass the stream of the handler", func() { grpcdrain.Messages[int](nil) })
	for _, bad := range []string{"", "Watch", "/Watch", "service/Watch", "/service/", "//Watch"} {
		panics(`grpcdrain: EndAtStop("`+bad+`"): must have the form "/package.Service/Method"`, func() { grpcdrain.EndAtStop(bad) })
	}
}
