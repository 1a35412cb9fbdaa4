package httpdrain

import "time"

// roundTrips is the least number of round trips for which the drain keeps a quiet connection: one for a
// request that is on its way, and three more because the time of a round trip varies.
const roundTrips = 4

// linger returns how long the drain keeps the connection if it is quiet, between least and most. A
// client that sends one request after another, and should send the next one before most has passed,
// is waited for: the response to that request says Connection: close. The caller holds c.mu.
func (c *conn) linger(least, most time.Duration) time.Duration {
	wait := least
	if rtt, ok := roundTrip(c.raw); ok {
		wait = max(wait, roundTrips*rtt)
	}
	if next := c.lastStart + c.interval - time.Since(epoch); c.interval > 0 && next <= most {
		wait = max(wait, next+c.interval) // requests do not come at exact times
	}
	return min(wait, most)
}
