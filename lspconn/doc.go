// Package lspconn talks to language servers over stdio, and ends them: cleanly, within a deadline, and without orphans.
//
//	conn, err := lspconn.Start(ctx, lspconn.Server{
//		Command:    []string{"gopls"},
//		Initialize: json.RawMessage(`{"processId": null, "rootUri": null, "capabilities": {}}`),
//	})
//	result, err := conn.Call(ctx, "textDocument/hover", params)
//	report, err := conn.Close(ctx)
//
// A [Conn] owns the process, its pipes, the order in which messages are written, and the life cycle. It sends initialize,
// initialized, $/cancelRequest, shutdown and exit; all else is the caller's, as [json.RawMessage]. A [Manager] has many of
// them, started when they are first asked for, and closes them side by side under one deadline.
//
// # Scopes
//
// A connection is a scope of package ctxshutdown below the one that its ctx carries, and holds a guard there until its
// process has been reaped. So stopping the program closes every connection, and waiting for the program waits for them.
// What a connection is waiting for is named in reports: "queue" for messages that are yet to be written, "calls" for those
// that are yet to be answered, "requests" for those of the server that a handler is at, "process" for the process itself.
// Force ends the process at once.
//
// # The deadline
//
// Closing takes no longer than a deadline that is fixed when it begins, 10 s if not said otherwise:
//
//	0          20 %                 60 %        80 %      90 %      100 %
//	├─ drain ──┤                     │           │         │         │
//	│  queue, then shutdown ────────▶│           │         │         │
//	│  its answer, then exit; the process leaves │         │         │
//	│  20 % later its stdin is closed ──────────▶│ SIGTERM │ SIGKILL │ unconfirmed
//
// Each step ends as soon as it can; the marks are where it is given up. A server that answers shutdown with an error, or
// not at all because it has gone, is terminated at once, and so is one that has stopped reading. SIGTERM and SIGKILL go
// to everything that the server has started, as far as the platform can tell; see internal/proc: on Linux a cgroup, or
// else process group, session, descendants and a mark in the environment; on macOS and the BSDs the process group;
// elsewhere the server alone, which on Windows is killed where others get a SIGTERM.
//
// # Panics
//
// A panic in a callback ends its connection and nothing else, and is named in its report: see [PanicError].
//
// Nothing is logged, unless [Server.Logger] is set.
package lspconn
