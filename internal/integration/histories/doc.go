// Package histories records what several goroutines do to one tree of scopes at the same time. It
// then lets porcupine (github.com/anishathalye/porcupine) search for an order of the recorded
// operations in which a sequential model gives the same results.
//
// An operation on a guard takes effect in the scope of the guard and in each ancestor, but not in
// one step: a release reaches the lowest scope first, and a stop reaches it last. So each scope is
// an object with a history of its own. In the history of a scope,
//
//   - an acquisition in the subtree of the scope counts at some time between its call and its
//     return; when it returns, it is decided which completions it still delays;
//   - a successful TryGuard counts while its scope is running, and a refused one may count for a
//     short time;
//   - a released guard stops being counted, and a stop of the scope or of an ancestor is signalled,
//     at some time between call and return;
//   - the result of State is exact;
//   - a completion is resolved only if the scope was complete at some time after the completion was
//     requested.
//
// A completion that is not resolved yet is not an error, because a goroutine may be about to
// resolve it. At the end of a history, when no operation is under way, the test checks that every
// completion is resolved.
package histories
