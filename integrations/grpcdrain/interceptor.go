package grpcdrain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// retryAfter is how long a client is asked to wait after a refused call. By then, the client's load
// balancer should have removed this server.
const retryAfter = 100 * time.Millisecond

// healthWatch is the health service's stream Watch, whose handler never returns by itself. So the
// interceptor ends it at the stop, and the client learns that this server is not serving.
const healthWatch = "/grpc.health.v1.Health/Watch"

// An InterceptorOption configures an interceptor.
type InterceptorOption interface{ applyTo(*calls) }

type interceptorOption func(*calls)

func (f interceptorOption) applyTo(c *calls) { f(c) }

// EndAtStop lists methods, such as "/package.Service/Method", whose context is cancelled when the
// scope is stopped. Use it for streaming handlers that only watch their context. The method Watch
// of the health service is always included. EndAtStop panics if a method does not have this form,
// because such a method would have no effect.
func EndAtStop(methods ...string) InterceptorOption {
	for _, m := range methods {
		if service, method, ok := strings.Cut(strings.TrimPrefix(m, "/"), "/"); !ok || m[0] != '/' || service == "" || method == "" {
			panic(fmt.Sprintf("grpcdrain: EndAtStop(%q): must have the form \"/package.Service/Method\"", m))
		}
	}
	return interceptorOption(func(c *calls) { c.endAtStop = append(c.endAtStop, methods...) })
}

// UnaryServerInterceptor returns an interceptor that makes each call hold a guard of a scope of its
// own. The scope is a child of s and has the name of the method. The documentation of the package
// describes the context of the handler.
//
// A call that begins after Force, or after the drain, is refused with [codes.Unavailable]. The
// response says when to try again, by a RetryInfo and, for clients with a retry policy, by
// grpc-retry-pushback-ms. If a handler returns the error of its context because of Force, the
// client receives Unavailable instead of Canceled, which would mean that the client cancelled the
// call.
//
// If the handler panics, the interceptor releases the guard, and the panic continues, so that an
// earlier interceptor can recover it. Without such an interceptor, the panic ends the program. If
// the program is draining at that time, the drain may complete, and main may call os.Exit(0),
// before the Go runtime has printed the panic.
//
// Place this interceptor after interceptors that may answer a call themselves, and before
// interceptors whose work the drain must wait for. UnaryServerInterceptor panics if s is nil.
func UnaryServerInterceptor(s *ctxshutdown.Swansong, opts ...InterceptorOption) grpc.UnaryServerInterceptor {
	calls := newCalls("UnaryServerInterceptor", s, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c, err := calls.begin(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		defer c.end()
		resp, err := handler(c, req)
		return resp, c.answer(err)
	}
}

// StreamServerInterceptor is like [UnaryServerInterceptor], for streams. The guard is held until
// the handler returns.
func StreamServerInterceptor(s *ctxshutdown.Swansong, opts ...InterceptorOption) grpc.StreamServerInterceptor {
	calls := newCalls("StreamServerInterceptor", s, opts)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c, err := calls.begin(stream.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		defer c.end()
		return c.answer(handler(srv, &callStream{stream, c}))
	}
}

type callStream struct {
	grpc.ServerStream
	call *call
}

func (s *callStream) Context() context.Context { return s.call }

type calls struct {
	scope     *ctxshutdown.Swansong
	endAtStop []string // names of methods: the stop of the scope cancels the context of their calls
}

func newCalls(function string, s *ctxshutdown.Swansong, opts []InterceptorOption) *calls {
	if s == nil {
		panic("grpcdrain: " + function + ": nil scope; create one with ctxshutdown.New")
	}
	c := &calls{scope: s, endAtStop: []string{healthWatch}}
	for _, o := range opts {
		if o != nil {
			o.applyTo(c)
		}
	}
	return c
}

// A call is the context of one gRPC call. It is cancelled with the client's context and with
// cancelledBy. It has the values of both the client's context and the scope. Values of the client's
// context are preferred, so that the program's tracing span does not hide that of the request. The
// exception is the scope: FromContext returns the scope of the call, even if the client's context
// carries another one.
type call struct {
	context.Context
	client      context.Context
	cancelledBy context.Context // cancels the call when it ends: the scope if endsAtStop is set, otherwise the scope's Work
	scope       *ctxshutdown.Swansong
	endsAtStop  bool
	cancel      context.CancelCauseFunc
	detach      func() bool // unregisters the function that cancels the call
	guard       *ctxshutdown.Guard
	stop        context.CancelFunc
}

func (cs *calls) begin(client context.Context, method string) (*call, error) {
	// Work must be checked before the guard is acquired. A complete scope still gives out guards,
	// but its Work stays cancelled, so a call that begins after the drain must be refused here.
	work := cs.scope.Work()
	if work.Err() != nil {
		return nil, refuse(client, work)
	}
	scope, stop := ctxshutdown.WithCancel(cs.scope, ctxshutdown.WithName(strings.TrimPrefix(method, "/")))
	c := &call{client: client, cancelledBy: work, scope: scope, stop: stop, guard: scope.Guard(), endsAtStop: slices.Contains(cs.endAtStop, method)}
	if c.endsAtStop {
		c.cancelledBy = cs.scope
	}
	c.Context, c.cancel = context.WithCancelCause(client)
	c.detach = context.AfterFunc(c.cancelledBy, func() { c.cancel(context.Cause(c.cancelledBy)) })
	return c, nil
}

func (c *call) Value(key any) any {
	v := c.Context.Value(key)
	if _, isScope := v.(*ctxshutdown.Swansong); v != nil && !(isScope && isScopeKey(key)) {
		return v
	}
	if c.endsAtStop {
		return c.scope.Value(key)
	}
	// Work is called only here, because it is costly and few handlers need its values.
	return c.scope.Work().Value(key)
}

// isScopeKey reports whether key is one of the context keys with which package ctxshutdown finds a
// scope. A user may store a scope under another key.
func isScopeKey(key any) bool {
	switch key.(type) {
	case ctxkey.NearestScope, ctxkey.SoftScope:
		return true
	}
	return false
}

func (c *call) end() {
	c.detach()
	c.cancel(nil)
	c.guard.Release()
	c.stop()
}

// answer returns the error to send to the client when the handler has returned err.
func (c *call) answer(err error) error {
	if err == nil || c.cancelledBy.Err() == nil || c.client.Err() != nil {
		return err
	}
	if cause := context.Cause(c.cancelledBy); status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled) || errors.Is(err, cause) {
		return status.Errorf(codes.Unavailable, "the server is shutting down and has cut this call short: %v", cause)
	}
	return err
}

// refuse returns the error for a call whose handler is not called because work, the hard context of
// the scope, has been cancelled.
func refuse(ctx, work context.Context) error {
	// Ignore the error: SetTrailer fails only if the call has no transport, as in a test of an
	// interceptor.
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(retryAfter.Milliseconds(), 10)))
	st := status.Newf(codes.Unavailable, "the server is shutting down and has not begun this call: %v", context.Cause(work))
	if detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)}); err == nil {
		st = detailed
	}
	return st.Err()
}
