// Package launcher starts subprocesses in groups, keeps them running, and stops and replaces them
// without losing requests. The command launcher (cmd/launcher) runs groups from a file; this
// package is for programs that start processes themselves. docs/reference/launcher.md explains the
// concepts and all defaults.
//
//	m, err := launcher.Start(ctx, launcher.Config{Groups: []launcher.GroupConfig{{
//		Name:    "web",
//		Command: []string{"/usr/local/bin/web"},
//		Desired: 4,
//	}}})
//	err = m.Ready(ctx)                          // all groups are healthy
//	err = m.Restart(ctx, "web", "a new binary") // all processes have been replaced
//	err = m.Shutdown().Wait(ctx)                // all processes have been reaped
//
// # Processes
//
// A process that takes part serves the lifecycle protocol on a socket whose address the launcher
// passes to it, with package launcher/client. It reports when it is ready, how far its shutdown is
// and what blocks it, and it can ask for more time. A process that does not take part can report
// its state as to systemd, by sd_notify; otherwise it counts as ready when it runs. It is stopped
// by signals. The launcher finds out what a process uses; see [Protocol]. A [Probe] checks a
// process from the outside.
//
//	SPAWNING ─▶ STARTING ─▶ WARMING ◀─▶ READY ─────┐ stopped, or drains by itself
//	    │           │           │        │         ▼
//	    └───────────┴───────────┴──▶ UNHEALTHY ─▶ SHUTDOWN_REQUESTED ─▶ DRAINING ◀──▶ BLOCKED
//
//	from every state, when the process has been reaped: COMPLETE, FORCED, CRASHED or GONE
//
// Every stop is bounded: a maximum is followed by SIGTERM and SIGKILL to the process and its
// descendants. Descendants that survive are named in the [Status].
//
// # Scopes
//
// A [Manager] is a scope of package ctxshutdown, a child of the scope that its ctx carries. Each
// group is a child of the manager, and each process a child of its group, which holds a guard until
// the process has been reaped. So a program that stops its scope stops its processes, in the order
// of their dependencies, and waits for them.
//
// # When the launcher dies
//
// [GroupConfig.OnLauncherDeath] says what becomes of the processes of a launcher that is killed:
// they are killed, too ([Kill]), or adopted by the next launcher with the same directory ([Keep]).
//
// # Platforms
//
// Launchers run on Linux and macOS. On macOS a process that leaves its process group can survive
// its stop; docs/reference/launcher.md lists the differences. On other systems the package
// compiles, and Start returns an error.
//
// # Where things are
//
// [Start] makes a [Manager] out of what an earlier launcher has left (start.go, takeover.go), and
// its recorder writes what the next one has to know into the state file (recorder.go). A Manager
// finds groups in its registry (registry.go) and gives them orders (orders.go). A group waits for
// others (dependencies.go), and then runs in a goroutine of its own (group.go), which has a
// controller start and stop processes.
//
// The controller is a type of internal/controller. It decides with packages that start nothing:
// internal/restart decides whether and when a process that has ended is replaced, internal/roll
// what a roll does next, and internal/revision has the configurations of the group.
//
// A process is a type of internal/process. It runs one subprocess as the state machine in
// internal/lifecycle says. Its command and environment come from internal/spawn, and its connection
// is a type of internal/transport. What happens is sent to watchers by internal/events. The
// deadline for the stop of all groups is in internal/deadline.
package launcher
