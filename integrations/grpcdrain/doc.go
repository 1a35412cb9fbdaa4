// Package grpcdrain stops a gRPC server without losing a call.
//
//	rpc, cancel := ctxshutdown.WithCancel(ctx, ctxshutdown.WithName("grpc"))
//	defer cancel()
//	srv := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpcdrain.UnaryServerInterceptor(rpc)),
//		grpc.ChainStreamInterceptor(grpcdrain.StreamServerInterceptor(rpc)))
//	err := grpcdrain.Serve(rpc, srv, ln, grpcdrain.Health(h))
//
// # Order of the shutdown
//
//	lame duck  health is NOT_SERVING, everything is still accepted; only if the scope belongs to a
//	           graceful.Process, otherwise health changes at the stop
//	stop       the listener is closed, each connection gets a GOAWAY, calls that a client began
//	           before it read the GOAWAY are served, and long streams are asked to end
//	force      the contexts of the calls are cancelled; 100 ms later the remaining calls are cut
//	           off, and Serve returns a list of them
//
// A GOAWAY loses no call: a client that has read it opens its next stream on another connection,
// and the calls that it has sent before are served. If the interceptors refused these calls from
// the stop on, the clients would get errors for calls that the server can answer. So the
// interceptors refuse calls only from the force on.
//
// # Contexts of a handler
//
// The context of a call is cancelled when the client cancels it and by the force, but not by the
// stop, so that handlers can finish. A long stream must learn of the stop, because otherwise it
// delays the drain until it is cut off. [ctxshutdown.FromContext] returns the scope of the call,
// whose Done channel is closed by the stop:
//
//	scope, _ := ctxshutdown.FromContext(stream.Context())
//	for event := range ctxshutdown.All(scope, events) {
//		stream.Send(event)
//	}
//	return nil
//
// A handler that receives messages uses [Messages]. For a handler that only watches its context,
// name its method in [EndAtStop].
package grpcdrain
