// Package roll decides how the instances of a group are replaced, one action at a time: the arithmetic of a Kubernetes
// Deployment, with its failures dealt with. It knows of no process and no clock. What it sees is handed to it, what it
// decides is handed back, and so is what it has to remember:
//
//	for {
//		state, action = roll.Next(config, state, view())
//		switch action.Do {
//		case roll.Start: // an instance of action.Version, which view lists as Starting from now on
//		case roll.Stop:  // the instance action.ID, which view lists as Stopping from now on
//		case roll.Wait:  // until something happens to an instance, or until action.Until
//		}
//	}
//
// The traces in testdata are what the controllers of Kubernetes decide, and a test compares; launcher/internal/kube records
// them. Unlike a Deployment, a group counts an instance that is stopping for as long as it exists.
//
// One action at a time, since what a stop takes for granted has to be true when the stop begins, and not when a list of
// stops was drawn up.
//
//	        ┌─────────┐  canaries stayed ready   ┌─────────┐  all replaced
//	Begin ─►│ Canary  ├─────────────────────────►│ Rolling ├───────────────► Done, or Degraded where some were given up
//	        └────┬────┘                          └────┬────┘
//	             │        failed for good             │
//	             ├────────────────────────────────────┘
//	             │ rollback: also ordered from outside, also when paused, and where all have failed that continue goes on with
//	             ▼
//	       ┌─────────────┐  all put back
//	       │ RollingBack ├──────────────────────────────────────────────────► RolledBack
//	       └─────────────┘
//
// The upper three can be paused, and resumed: a paused roll starts nothing, and stops nothing but what is unhealthy.
//
// Invariants, each of them whatever crashes and whenever:
//
//   - No start makes the instances, those that are stopping included, more than Desired + MaxSurge.
//   - No stop of a ready instance leaves fewer than MinHealthy that are available: ready for MinReady.
//   - Who is lost is made up for while the roll goes on, as far as the first one and Backoff allow: with OnlyForward by Next,
//     and else, where old ones are lost that the roll has not come to, by the caller.
//   - A roll comes to an end or to a pause if each instance that starts becomes ready or fails, each that stops ends, and
//     failures come to an end. ProgressDeadline sees to it where they do not.
package roll
