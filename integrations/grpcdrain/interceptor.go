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
	"github.com/swansong-go/swansong/internal/scopekey"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// retryAfter is what a refused client is told to wait: by then its balancer has taken this server out.
const retryAfter = 100 * time.Millisecond

// healthWatch never ends by itself, and whoever watches learns from its end what it watches for.
const healthWatch = "/grpc.health.v1.Health/Watch"

// An InterceptorOption configures an interceptor.
type InterceptorOption interface{ applyTo(*calls) }

type interceptorOption func(*calls)

func (f interceptorOption) applyTo(c *calls) { f(c) }

// EndAtStop names methods, as in "/package.Service/Method", whose context ends at the stop: streaming handlers that
// look at nothing but their context. The health service's Watch is always one of them. It panics if a name has another
// form, since a misspelt one would change nothing.
func EndAtStop(methods ...string) InterceptorOption {
	for _, m := range methods {
		if service, method, ok := strings.Cut(strings.TrimPrefix(m, "/"), "/"); !ok || m[0] != '/' || service == "" || method == "" {
			panic(fmt.Sprintf("grpcdrain: EndAtStop(%q): a method is written as in \"/package.Service/Method\"", m))
		}
	}
	return interceptorOption(func(c *calls) { c.soft = append(c.soft, methods...) })
}

// UnaryServerInterceptor makes each call a guard of a scope of its own, which is named after the method, below s. For
// the context that the handler gets see the package's documentation.
//
// A call that comes when the drain has been cut short, or is over, is refused with [codes.Unavailable] and told when to try
// again, by a RetryInfo and, for clients with a retry policy, by grpc-retry-pushback-ms. A handler that ends with the error of its
// context because the drain was cut short answers Unavailable, too, and not Canceled, which is the client's word. A panic
// passes through and releases the guard, for an interceptor before this one to recover from. gRPC itself does not: without
// such an interceptor the panic ends the program, which may be draining, and whose main may be told that the drain is over,
// and call os.Exit(0), before the runtime has printed the panic.
//
// Put it last in a chain where interceptors before it may answer by themselves, and first where they do work that the
// drain has to wait for. It panics if s is nil.
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

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. The guard is held until the handler returns.
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
	scope *ctxshutdown.Swansong
	soft  []string
}

func newCalls(what string, s *ctxshutdown.Swansong, opts []InterceptorOption) *calls {
	if s == nil {
		panic("grpcdrain: " + what + " of a nil scope")
	}
	c := &calls{scope: s, soft: []string{healthWatch}}
	for _, o := range opts {
		if o != nil {
			o.applyTo(c)
		}
	}
	return c
}

// A call is the context of one call: it ends with the client's and with a tier of the scope, and carries the values of
// both. Those of the call come first: the span of a request must not be hidden by that of the program. Only the scope is
// this one, whatever the call has come through: another's stop is not what its handler waits for.
type call struct {
	context.Context
	client context.Context
	tier   context.Context // of the server's scope; its end is what the drain has to say to this call
	scope  *ctxshutdown.Swansong
	soft   bool
	cancel context.CancelCauseFunc
	undo   func() bool
	guard  *ctxshutdown.Guard
	stop   context.CancelFunc
}

func (cs *calls) begin(client context.Context, method string) (*call, error) {
	// The tier is asked before the guard: a scope that is complete has ended its Work, and a guard would not bring it back.
	tier := cs.scope.Work()
	if tier.Err() != nil {
		return nil, refuse(client, tier)
	}
	scope, stop := ctxshutdown.WithCancel(cs.scope, ctxshutdown.WithName(strings.TrimPrefix(method, "/")))
	c := &call{client: client, tier: tier, scope: scope, stop: stop, guard: scope.Guard(), soft: slices.Contains(cs.soft, method)}
	if c.soft {
		c.tier = cs.scope
	}
	c.Context, c.cancel = context.WithCancelCause(client)
	c.undo = context.AfterFunc(c.tier, func() { c.cancel(context.Cause(c.tier)) })
	return c, nil
}

func (c *call) Value(key any) any {
	v := c.Context.Value(key)
	if _, scope := v.(*ctxshutdown.Swansong); v != nil && !(scope && asksForScope(key)) {
		return v
	}
	if c.soft {
		return c.scope.Value(key)
	}
	return c.scope.Work().Value(key) // made here: most handlers never ask for the scope, and it is the dearest part of a call
}

// asksForScope tells the keys of package ctxshutdown from others that find a scope, too: somebody's value.
func asksForScope(key any) bool {
	switch key.(type) {
	case scopekey.Nearest, scopekey.Soft:
		return true
	}
	return false
}

func (c *call) end() {
	c.undo()
	c.cancel(nil)
	c.guard.Release()
	c.stop()
}

// answer is what the client is told where the handler has returned err.
func (c *call) answer(err error) error {
	if err == nil || c.tier.Err() == nil || c.client.Err() != nil {
		return err
	}
	if cause := context.Cause(c.tier); status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled) || errors.Is(err, cause) {
		return status.Errorf(codes.Unavailable, "the server shuts down and has cut this call short: %v", cause)
	}
	return err
}

// refuse returns the error for a call that does not begin.
func refuse(ctx, tier context.Context) error {
	// Fails where the call has no transport, as in a test of an interceptor.
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(retryAfter.Milliseconds(), 10)))
	st := status.Newf(codes.Unavailable, "the server shuts down and has not begun this call: %v", context.Cause(tier))
	if hinted, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)}); err == nil {
		st = hinted
	}
	return st.Err()
}
