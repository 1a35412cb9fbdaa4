// Package lspconn starts language servers, exchanges messages with them over stdio or a socket, and
// shuts them down within a deadline without leaving processes behind.
//
//	conn, err := lspconn.Start(ctx, lspconn.Server{
//		Command:    []string{"gopls"},
//		Initialize: json.RawMessage(`{"rootUri": null, "capabilities": {}}`),
//	})
//	result, err := conn.Call(ctx, "textDocument/hover", params)
//	report, err := conn.Close(ctx)
//
// A [Conn] owns the server process, its pipes, the order in which messages are written, and the
// life cycle. It sends initialize, initialized, $/cancelRequest, shutdown and exit. The caller
// sends all other messages, with parameters as [json.RawMessage] or, by the functions [Call] and
// [Notify], as Go types. So the caller handles documents, progress, registrations and edits. The
// program examples/lsphover of this module shows how. A [Manager] keeps one connection per key,
// starts a connection when it is first requested, and closes all of them in parallel under one
// deadline.
//
// A [Process] starts and ends a server but exchanges no messages, for programs that use another
// JSON-RPC library for this.
//
// # Scopes
//
// A connection has a scope of package ctxshutdown, whose parent is the scope in its ctx. It holds a
// guard in the parent scope until its process has been reaped. Stopping the program therefore
// closes every connection, and waiting for the program's completion waits for every server process.
//
// The guard report of the scope names what a connection is waiting for: "queue" for messages that
// have not been written, "calls" for calls without a response, "requests" for requests of the
// server whose response has not been written, "notifications" for calls of OnNotify, and "process"
// for the process itself. Force ends the process at once.
//
// # Order
//
// What the server sends is delivered in the order in which it was received. A call returns after
// the handlers of all messages that preceded its response have returned, so progress and partial
// results are seen before the result. A handler that takes long calls [Async], so that the messages
// behind it do not wait.
//
// # The deadline
//
// Closing takes no longer than a deadline that is fixed when closing begins. The default is 10 s.
//
//	0          20 %                 60 %        80 %      90 %      100 %
//	├─ drain ──┤                     │           │         │         │
//	│  queue, then shutdown ────────▶│           │         │         │
//	│  its response, then exit; the process exits│         │         │
//	│  its stdin is closed ─────────────────────▶│ SIGTERM │ SIGKILL │ unconfirmed
//
// stdin is closed a fifth of the deadline after exit, or halfway to SIGTERM if that is earlier.
//
// With less than 10 s, both signals are sent earlier, so that a second is left after SIGKILL, but
// no more than a fifth of the deadline: with 5 s they are sent at 70 % and 80 %.
//
// The percentages are upper bounds: the next step starts as soon as the previous one succeeds.
// SIGTERM is sent without waiting if the server answers shutdown with an error, closes its output,
// or exits and leaves processes behind, if the queue is not written after 20 %, and if the
// connection is Initializing or Failed.
//
// SIGTERM and SIGKILL are sent to every process that the server has started, as far as the platform
// can find them. Linux uses a cgroup or, without one, the process group, the session, descendants
// and a variable in the environment. macOS and the BSDs use the process group. On other systems
// only the server itself is signalled; Windows kills it where other systems send SIGTERM.
//
// # Panics
//
// A panic in a callback fails its connection and does not affect the rest of the program. The
// connection's report names the panic: see [PanicError].
//
// The package logs nothing unless [Server.Logger] is set.
package lspconn
