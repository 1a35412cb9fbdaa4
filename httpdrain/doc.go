// Package httpdrain serves HTTP until a scope is told to stop, and then ends every connection without losing a request.
//
//	s := ctxshutdown.New(ctx)
//	srv := &http.Server{Addr: ":8080", Handler: mux}
//	err := httpdrain.ListenAndServe(s, srv) // nil: s was told to stop, and everybody has been served
//
// A request is lost when bytes of it were sent on an established connection and no complete response came back.
// [http.Server.Shutdown] loses requests under load, because it closes idle connections that already have a request in the
// socket. This is the order that loses none:
//
//  1. Lame duck: [Ready] says no, and everything else goes on (see package graceful).
//  2. The scope is told to stop. Accept until the kernel's queue is empty, then close the listener.
//  3. Every response whose header is not written yet says Connection: close; on HTTP/2 that is a GOAWAY. A request that
//     still arrives is served, however long its header takes.
//  4. A connection that has been quiet for the linger is closed, on HTTP/2 after a GOAWAY. So is one that never sent a
//     byte, for which net/http alone waits five seconds and more.
//  5. Hijacked connections, such as websockets, are waited for until they are closed. Their handlers, and those of server-sent
//     events and long polls, learn of the stop from the scope in the request's context.
//  6. Hard: when Work ends, by [ctxshutdown.Swansong.Force], what is left is closed, and Serve returns who that was.
//
// # In a handler
//
// Every request holds a guard of the server's scope, which is a child of s. The request's context is on the hard tier: it
// ends when the client goes away, when the handler returns, and by Force, but not by the stop. What lasts asks the scope:
//
//	scope, _ := ctxshutdown.FromContext(r.Context())
//	select {
//	case e := <-events:
//		…
//	case <-scope.Done(): // told to stop: say goodbye and return
//	case <-r.Context().Done(): // the client is gone, or the drain was cut short
//	}
//
// # What is changed in the server
//
// The first Serve of a server chains its Handler, ConnState, ConnContext, BaseContext and TLSNextProto; they must be set
// before. ConnState and ConnContext are given the connection that the listener accepted, or the [*tls.Conn] around it. From
// BaseContext the values are taken, and not its end, which would cancel requests in flight; where s has a value for the same
// key, that counts, since the request belongs to s. Handlers get a ResponseWriter that has all that the server's own has to
// show: Flusher, io.ReaderFrom (so that files are still sent by sendfile), io.StringWriter, Hijacker on HTTP/1, Pusher on
// HTTP/2, and everything that [http.ResponseController] does. What [http.MaxBytesReader] asks of it is net/http's own secret:
// of a body that is too large, the server reads up to 256 KB more, and keeps the connection if that is all, unless the handler
// sets Connection: close. A hijacked connection is a net.Conn around the accepted one, which its NetConn method returns.
//
// # What remains
//
//   - A client that connects between the last look at the kernel's queue and the closing of the listener is reset; handing
//     the listener over to a successor is the only full answer.
//   - A listener without a SetDeadline that works is closed a few milliseconds after the stop. If its Accept waits for something
//     else than a connection, as one does that limits their number, those in the queue are reset.
//   - A client that sends its next request at the moment at which the linger ends is served if the request is there when the
//     server looks. On its way, it meets a closed connection, as it may with any idle time-out.
//   - A client that falls silent for two seconds (or the linger, if that is longer) in the middle of a header is closed as a
//     quiet one is. That may be a request lost, so it is a warning in the log and counted by [ReadStats], but no error of
//     Serve: a client that never finishes a header would make each drain one that has failed. Under TLS, a client that has
//     shown a certificate and sent nothing else may be taken for one. One that has sent half a header together with the request
//     before it is closed after the linger, and not counted: nothing but net/http knows that it has come.
//   - The linger counts from when the kernel has taken a response, and not from when the client has read it. A client that needs
//     longer than that for what is in the kernel's buffers finds the connection closed right behind the response.
//   - On HTTP/2, a response that the client has no room for, and whose handler had returned before a stream of [Debug] began on
//     the same connection, is not waited for.
//   - On HTTP/1, requests pipelined behind one whose response says Connection: close are not read.
//   - On HTTP/2, net/http sends one GOAWAY, with the last stream it has seen: a request on its way at that moment is refused by
//     it, which tells the client that nothing of it was carried out, and clients send it again elsewhere. HTTP/2 connections
//     of golang.org/x/net/http2/h2c are hijacked ones for the server: use [http.Server.Protocols].
package httpdrain
