// Package launcher starts subprocesses in groups, keeps them running, and stops and replaces them without loss. The command
// launcher (cmd/launcher) runs groups from a file; this is what it is made of, for programs that start processes by
// themselves. docs/launcher.md has the concepts, all defaults and what each of them is for.
//
//	m, err := launcher.Start(ctx, launcher.Config{Groups: []launcher.GroupConfig{{
//		Name:    "web",
//		Command: []string{"/usr/local/bin/web"},
//		Desired: 4,
//	}}})
//	err = m.Ready(ctx)                          // all groups are healthy
//	err = m.Restart(ctx, "web", "a new binary") // all processes are replaced, the old ones when new ones are ready
//	err = m.Shutdown().Wait(ctx)                // the last process has been reaped
//
// # A process
//
// One that takes part serves a protocol on a socket whose address it is given: package launcher/client does, so that a
// shutdown says how far it is, who is blocking it, and asks for more time when it has to. One that does not ([Signals])
// is ready when it runs, and ends by signals.
//
//	SPAWNING ─▶ STARTING ─▶ WARMING ─▶ READY ──────┐ stop, or it drains by itself
//	    │           │           │        │         ▼
//	    └───────────┴───────────┴──▶ UNHEALTHY ─▶ SHUTDOWN_REQUESTED ─▶ DRAINING ◀──▶ BLOCKED
//
//	and from each of them, when the process has been reaped: COMPLETE, FORCED, CRASHED or GONE
//
// Each stop has an end: the grace period, moved by requests for more time up to a maximum, then SIGTERM and SIGKILL to the
// process and all that it has started, then the reap. What is left behind is ended too, or named.
//
// # Scopes
//
// A [Manager] is a scope of package ctxshutdown below the one that its ctx carries, each group one below it, and each
// process one below its group that holds a guard until it has been reaped. So a program that stops stops its processes, in
// the order of their dependencies, and waiting for it waits for them.
//
// # A launcher that dies
//
// What becomes of the processes of a launcher that is killed, [GroupConfig.OnLauncherDeath] says: [Kill], or [Keep], for
// the next launcher with the same directory to adopt.
//
// Launchers run on Linux and on macOS, where a process that leaves its group can get away; docs/launcher.md has the
// differences. Elsewhere the package compiles, and Start fails.
package launcher
