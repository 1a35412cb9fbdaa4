// Package grpcdrain ends a gRPC server without losing a call.
//
//	rpc, cancel := ctxshutdown.WithCancel(ctx, ctxshutdown.WithName("grpc"))
//	defer cancel()
//	srv := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpcdrain.UnaryServerInterceptor(rpc)),
//		grpc.ChainStreamInterceptor(grpcdrain.StreamServerInterceptor(rpc)))
//	err := grpcdrain.Serve(rpc, srv, ln, grpcdrain.Health(h))
//
// # The order
//
//	lame duck  health is NOT_SERVING, everything is still accepted (only under a graceful.Process, else at the stop)
//	stop       the listener closes, each connection gets GOAWAY; calls begun before a client has read it are served
//	           and long streams are told to end
//	force      the contexts of the calls end; 100 ms later what still runs is cut off and named
//
// GOAWAY is how HTTP/2 turns clients away, and it loses nothing: a client that has read it opens its next stream
// elsewhere, and what it had sent before is served. Refusing calls in that window would only turn a call that can be
// answered into an error. So the interceptors refuse from the force on, not from the stop on.
//
// # Two tiers for a handler
//
// The context of a call ends with the client and with the drain cut short, not with the stop: a handler sees its call
// through. A long stream has to be told, though, or it holds the drain up until it is cut. [ctxshutdown.FromContext] of
// its context is the scope of the call, and that is done at the stop:
//
//	scope, _ := ctxshutdown.FromContext(stream.Context())
//	for event := range ctxshutdown.All(scope, events) {
//		stream.Send(event)
//	}
//	return nil
//
// A handler that receives uses [Messages]. One that looks at its context only is named in [EndAtStop].
package grpcdrain
