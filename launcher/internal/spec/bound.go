package spec

import "time"

const (
	// RouterTimeout bounds one call of the router.
	RouterTimeout = 2 * time.Second

	// ReapTimeout bounds the wait after SIGKILL, until the process and all its descendants have
	// exited.
	ReapTimeout = 2 * time.Second
)

// Delays returns the longest time from the call that stops a process until the process is asked to
// stop, in a launcher without a router. It is the sum of the deregister delay and the pre-stop
// hooks.
func (g Group) Delays() time.Duration {
	d := g.Shutdown.DeregisterDelay
	for _, h := range g.PreStop {
		d += h.Timeout
	}
	return d
}

// LeaveBound is like Delays, for a launcher with a router. It adds the time limit of two calls of
// the router, because the router can still be busy with its previous call.
func (g Group) LeaveBound() time.Duration { return 2*RouterTimeout + g.Delays() }

// Bound returns the longest time from the call that stops a process until the process has been
// reaped, or has survived SIGKILL.
func (g Group) Bound(hasRouter bool) time.Duration {
	bound := g.Delays() + g.Shutdown.Max + g.Shutdown.SIGTERMTimeout
	if hasRouter {
		bound += g.LeaveBound() - g.Delays()
	}
	if total := g.Shutdown.TotalDeadline; total > 0 {
		bound = min(bound, total/10*9)
	}
	return bound + ReapTimeout
}
