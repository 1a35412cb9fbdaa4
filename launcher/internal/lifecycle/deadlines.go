package lifecycle

import "time"

// capDeadline returns t, or if that is earlier, the time at which four fifths of the total deadline
// have passed. For an adopted process, the result is also not later than the deadline of the
// earlier launcher.
func (m *Machine) capDeadline(t time.Time) time.Time {
	for _, by := range []time.Time{m.terminateBy, m.stopBy} {
		if !by.IsZero() && by.Before(t) {
			t = by
		}
	}
	return t
}

// capKill returns the time t at which SIGKILL is due, or if that is earlier, the time at which nine
// tenths of the total deadline have passed. The last tenth is left to reap the process.
func (m *Machine) capKill(t time.Time) time.Time {
	if total := m.cfg.Shutdown.TotalDeadline; total > 0 && !m.StopAt.IsZero() {
		if by := m.StopAt.Add(total / 10 * 9); by.Before(t) {
			return by
		}
	}
	return t
}
