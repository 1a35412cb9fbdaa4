// Package roll decides how the instances of a group are replaced, one action at a time. The
// arithmetic is that of a Kubernetes Deployment, with rules for failures added. The package starts
// no process and reads no clock: the caller passes in what it sees and does what the package
// decides.
//
// A [Roll] is one replacement. It holds everything that is remembered from one decision to the
// next:
//
//	r := &roll.Roll{From: 1, To: 2, Reason: "a new binary"}
//	r.Begin(config, view())
//	for {
//		switch step := r.Next(config, view()); step.Action.Do {
//		case roll.Start: // start an instance; view lists it as Starting from now on
//		case roll.Stop:  // stop step.Action.ID; view lists it as Stopping from now on
//		case roll.Wait:  // wait until an instance changes, or until step.Action.Until
//		}
//	}
//
// Roll is built on [Next] and [State], which are plain values: Next takes a State and returns the
// one to pass next time. [Keep] decides for a group that is not being rolled.
//
// A test compares the decisions with those of the Kubernetes controllers, which
// launcher/internal/kube has recorded into testdata. There are two differences: a group counts an
// instance that is stopping for as long as it exists, and keeps an instance that has been ready for
// less than MinReady while fewer than MinHealthy are available.
//
// Actions come one at a time because the conditions of a stop must hold when the stop begins. A
// list of stops would rest on what was true when the list was made.
//
//	        ┌─────────┐  canaries stayed ready   ┌─────────┐  all replaced
//	Begin ─►│ Canary  ├─────────────────────────►│ Rolling ├───────────────► Done, or Degraded if some were given up
//	        └────┬────┘                          └────┬────┘
//	             │        failed for good             │
//	             ├────────────────────────────────────┘
//	             │ rollback: by OnFailure, by order (also while paused), or because all replacements failed under Continue
//	             ▼
//	       ┌─────────────┐  all put back
//	       │ RollingBack ├──────────────────────────────────────────────────► RolledBack
//	       └─────────────┘
//
// Canary, Rolling and RollingBack can be paused and resumed. A paused roll starts nothing and stops
// only unhealthy instances.
//
// Invariants, which hold whatever crashes at whatever time:
//
//   - No start makes the instances, including those that are stopping, more than Desired +
//     MaxSurge.
//   - No stop of a ready instance leaves fewer than MinHealthy instances available, which means
//     ready for MinReady.
//   - An instance that fails is replaced while the roll goes on, within the first invariant and
//     Backoff. An old one is replaced by an old one while the roll waits for canaries, or if fewer
//     than MinHealthy are left during Backoff. Otherwise a new one takes its place.
//   - A roll ends or pauses if each started instance becomes ready or fails, each stopped instance
//     ends, and failures stop. ProgressDeadline covers the cases where they do not.
package roll
