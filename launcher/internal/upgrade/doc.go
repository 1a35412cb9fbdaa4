// Package upgrade hands a running launcher over to another program: another version of the
// launcher, which takes its place in the same process.
//
//  1. The launcher runs the new program as a child, to check it: [Handoff.Check]. The child gets
//     the state of the launcher, and says whether it could go on with it, and with its own
//     configuration.
//  2. The launcher closes its [Gate], stops reading the output of processes, and executes the new
//     program: [Handoff.Exec]. Files that the new program needs stay open; what it has to know is
//     in a file in memory.
//  3. The new program takes all of that: [Take]. The processes are still its children.
//
// If 1 or 2 fails, the launcher goes on as if nothing had happened. If the new program cannot take
// over after all, it executes the earlier one again: [Taken.GoBack].
//
// # Check
//
// The child is started with [launcher.Config].UpgradeCheck as its arguments. It reads the handoff,
// as JSON, from its standard input, and answers with the line "swansong upgrade ok" on its standard
// output. Anything else refuses the upgrade; what the child prints on its standard error is the
// reason.
//
// A program reads the handoff of its own [Version] and of the one before.
package upgrade
