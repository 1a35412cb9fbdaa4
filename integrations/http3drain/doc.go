// Package http3drain serves HTTP/3 with quic-go until a scope is stopped, and then ends every
// connection without losing a request. It does for an [http3.Server] what package httpdrain does
// for an http.Server.
//
//	s := ctxshutdown.New(ctx)
//	srv := &http3.Server{Addr: ":443", Handler: mux, TLSConfig: config}
//	err := http3drain.ListenAndServe(s, srv) // nil: stopped, and all requests were answered
//
// # The order of a drain
//
//  1. Lame duck (see package graceful): requests are still served. Each client gets a first GOAWAY,
//     which tells it to open no more streams, at a random time in the first half of the phase. A
//     client that connects later gets it with a request, at the latest with its first one in the
//     second half. With [AltSvc], clients of HTTP/1.1 and HTTP/2 are told to forget HTTP/3.
//  2. The scope is stopped. New clients are refused with CONNECTION_REFUSED. A handshake that is
//     under way may take a second more.
//  3. The other clients get the first GOAWAY. A request that still arrives is served.
//  4. When a client has opened no stream for four round trips, at least 500 ms, it gets the second
//     GOAWAY, which names the last stream. A client that disregards the first GOAWAY gets the
//     second one after two seconds. A stream that arrives later is refused with
//     H3_REQUEST_REJECTED, which tells the client that its request was not processed. This can
//     happen to a client that does not read the first GOAWAY within that time, because packets were
//     lost or its machine is too busy.
//  5. Most clients close the connection when they have read their responses. The server closes it
//     when the client has acknowledged them, and three seconds have passed since the last one.
//  6. The server waits until streams that a handler has taken over with HTTPStream are closed for
//     writing. The handlers of such streams learn of the stop from the scope in the request's
//     context.
//  7. Force: when Work ends, the remaining connections are closed, and Serve returns a
//     [httpdrain.CutError] that lists the unfinished requests.
//
// For comparison: Shutdown of quic-go's http3.Server sends one GOAWAY, and refuses the requests
// that are on their way at that time. A client of quic-go sends a refused request again only if it
// has no body, or has GetBody.
//
// # In a handler
//
// Every request holds a guard of the server's scope. Its context is Work: it is cancelled when the
// client cancels the request or disconnects, when the handler returns, and by Force, but not by the
// stop. A handler that runs for long waits for the scope too, as with package httpdrain:
//
//	scope, _ := ctxshutdown.FromContext(r.Context())
//
// # Requests in reports
//
// Reports, the page httpdrain.Debug and the CutError name each request by its method, route, client
// and age. The route is the pattern of the server's [http.ServeMux], or r.Pattern when the response
// began, or else the path. httpdrain.ReadStats counts the drains and requests of this package too.
//
// # Limitations
//
//   - This package sends the second GOAWAY on the control stream, and follows the streams of a
//     connection. quic-go does not export either, so this package finds them by reflection. If
//     these fields differ in a version of quic-go, Serve returns an error at once and serves
//     nothing.
//   - Serve accepts connections from the socket that it is given. It cannot share a
//     [quic.Transport] with other code. WebTransport servers that accept the connections themselves
//     cannot use it.
//   - A client program may take more than three seconds to read a response that the client library
//     has received completely. If the library keeps the connection open that long, the server
//     closes the connection, and a library that discards unread data at the close then loses the
//     rest of the response. The client of quic-go discards such data, and closes the connection
//     itself only after the program has read everything, or closed the body.
//   - A client of quic-go (0.65) that receives a GOAWAY in the moment in which it begins a request,
//     and has no other request on the connection, closes the connection itself. The request fails
//     with H3_NO_ERROR (local). That happened to 4 of 224,000 requests. No server can prevent it.
//   - The server waits ten seconds at most for a client to acknowledge a response. A client that
//     has disappeared without closing its connection delays the drain by that time.
//   - A process that takes over the same port does not know the connections of its predecessor.
//     Give Serve a socket of its own, or end the predecessor first.
//   - 0-RTT is off unless QUICConfig.Allow0RTT is set. If a client connects with 0-RTT after the
//     stop, its connection is refused together with the request in it.
package http3drain
