// Package histories records what goroutines do to one tree of scopes at once, and has porcupine
// (github.com/anishathalye/porcupine) search for an order in which a model would have given the same answers.
//
// What happens to a guard below a scope happens to that scope, too, but not in one step: a release leaves the lowest scope
// first, and a stop reaches it last. So each scope is an object of its own, with a history of its own. In it,
//
//   - an acquisition at or below the scope counts at some point between its call and its return, and by its return it has
//     been decided which completions it still delays,
//   - a TryGuard that was admitted counted while its scope was running; one that was refused may have counted for a moment,
//   - a release uncounts, and a stop here or above signals, at some point between call and return,
//   - the answers of State are exact,
//   - a completion is not resolved before the scope was complete after it was asked for.
//
// A completion that could be resolved and is not yet proves nothing: it may be about to be. That none is forgotten is
// looked at when everything is over.
package histories
