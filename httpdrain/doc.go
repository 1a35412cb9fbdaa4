// Package httpdrain serves HTTP until a scope is stopped, and then ends every connection without
// losing a request.
//
//	s := ctxshutdown.New(ctx)
//	srv := &http.Server{Addr: ":8080", Handler: mux}
//	err := httpdrain.ListenAndServe(s, srv) // nil: stopped, and all requests were answered
//
// [Run] does that for a program that consists of one server.
//
// A request is lost if a client has sent bytes of it on an established connection and received no
// complete response. [http.Server.Shutdown] loses requests under load, because it closes idle
// connections that have a request in the socket. This package loses none. It takes these steps in
// this order:
//
//  1. Lame duck (see package graceful): [Ready] answers 503, and requests are still served. A
//     growing share of the responses says Connection: close, so that clients move to other servers.
//  2. The scope is stopped. Accept until the kernel's accept queue is empty, then close the
//     listener.
//  3. Each response whose header is not written yet says Connection: close. On HTTP/2, a first
//     GOAWAY tells the client to open no new streams. A request that still arrives is served.
//  4. A connection that has been quiet for the linger (see [WithLinger]) is closed, on HTTP/2 after
//     a second GOAWAY that names the last stream. So is a connection that never sent a byte, for
//     which net/http alone waits five seconds and more. On HTTP/1, quiet connections are kept while
//     their client still sends requests on others.
//  5. Serve waits until hijacked connections, such as websockets, are closed. Their
//     handlers, and those of server-sent events and long polls, learn of the stop from the scope in
//     the request's context.
//  6. Force: when Work ends, by [ctxshutdown.Swansong.Force], the remaining connections are closed,
//     and Serve returns a list of the unfinished requests.
//
// # In a handler
//
// Every request holds a guard of the server's scope, which is a child of s. The context of the
// request is Work: it is cancelled when the client disconnects, when the handler returns, and by
// Force, but not by the stop. A handler that runs for long waits for the scope too:
//
//	scope, _ := ctxshutdown.FromContext(r.Context())
//	select {
//	case e := <-events:
//		…
//	case <-scope.Done(): // the server was stopped: send a last message and return
//	case <-r.Context().Done(): // the client has disconnected, or Force was called
//	}
//
// # Changes to the http.Server
//
// The first Serve of an http.Server wraps its Handler, ConnState, ConnContext, BaseContext and
// TLSNextProto. Set them before.
//
//   - ConnState and ConnContext are called with the connection that the listener accepted, or with
//     the [*tls.Conn] around it.
//   - Requests have the values of BaseContext, but not its cancellation. If s has a value for the
//     same key, requests have that value.
//   - The ResponseWriter of a handler implements the same interfaces as net/http's: Flusher,
//     io.ReaderFrom (so that files are sent by sendfile), io.StringWriter, Hijacker on HTTP/1,
//     Pusher on HTTP/2, and everything that [http.ResponseController] uses. It cannot implement the
//     unexported method that [http.MaxBytesReader] uses. So after a body that is too large, the
//     server reads up to 256 KB more, and keeps the connection if that is the rest of the body,
//     unless the handler sets Connection: close.
//   - Hijack returns the same connection as with net/http alone: the one that the listener
//     accepted, if that is a [*net.TCPConn], a [*net.UnixConn] or a [*tls.Conn], or the [*tls.Conn]
//     of ServeTLS. The connection inside the [*tls.Conn] of ServeTLS, and the connections of other
//     listeners, are a net.Conn around the accepted connection, which its NetConn method returns.
//
// # Limitations
//
//   - A client that connects after the accept queue was found empty and before the listener is
//     closed is reset. Only handing the listener over to a successor avoids that.
//   - A listener without a working SetDeadline is closed a few milliseconds after the stop, except
//     for one of tls.NewListener around a listener that has it. If its Accept is then waiting for
//     something else than a connection, as in a listener that limits the number of connections, the
//     connections in the queue are reset. A listener is also closed if its Accept does not return
//     within a second after SetDeadline, as in one that accepts in a goroutine of its own. For a
//     [*net.TCPListener] or [*net.UnixListener] it is ten seconds, because only a very busy machine
//     keeps its Accept from returning.
//   - A client that sends its next request just as the linger ends is served if the request has
//     reached the server when the server looks for it. Otherwise it finds a closed connection, as
//     with any idle time-out.
//   - A connection whose client pauses for two seconds, or the linger if that is longer, in the
//     middle of a header is closed like a quiet one. The request may be lost, so the close is
//     logged as a warning and counted by [ReadStats]. It is not an error of Serve: otherwise a
//     single client that never finishes a header would make every drain fail. With TLS, a client
//     that has sent a certificate and nothing else may be taken for such a client; and a handshake
//     in which the client pauses for that long ends, without a warning of the drain. If a client
//     has sent half a header together with the previous request, its connection is closed after the
//     linger, and not counted: only net/http knows that the half header was received.
//   - The linger begins when the kernel has accepted the response for sending, not when the client
//     has read it. A client that takes longer than the linger to read from the kernel's buffers
//     finds the connection closed right after the response.
//   - On HTTP/2, the drain does not wait for a response for which the client has no room if its
//     handler had returned before an event stream of [Debug] began on the same connection.
//   - On HTTP/1, requests pipelined after one whose response says Connection: close are not read.
//   - If HTTP/2 is configured with golang.org/x/net/http2, the client gets the second GOAWAY only.
//     This GOAWAY refuses the requests that are on their way, and tells the client that they were
//     not processed. Most clients repeat them on another connection.
//   - HTTP/2 connections of golang.org/x/net/http2/h2c are hijacked connections for the server. Use
//     [http.Server.Protocols] instead.
package httpdrain
