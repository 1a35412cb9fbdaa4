package launcher

import (
	"maps"
	"slices"
	"time"
)

// Stats are what has happened since the launcher was started. They are counted where events are made, and not by one who
// watches: a watcher can be too slow, and begins too late to see the first processes start.
type Stats struct {
	Groups       map[string]GroupStats // one of which nothing has been heard yet is not there
	EventsMissed uint64                // by all who watch, or have watched
	StateFailing bool                  // what the next launcher has to know cannot be written down, which is tried again
}

// A GroupStats counts the events of a group. Package metrics has them for Prometheus.
type GroupStats struct {
	Starts            uint64                // processes that were started, or could not be
	Restarts          uint64                // of them, those in the place of one that failed
	ReadinessFailures uint64                // processes that were given up, or ended, before they were ready
	LivenessFailures  uint64                // that were given up after they had been
	Ends              map[Outcome]uint64    // processes that have been reaped
	Startup           Histogram             // from the start of a process until it was ready
	Shutdowns         map[Outcome]Histogram // from the order to stop until the reap, of those that were told to
	Extensions        uint64                // requests for more time
	Unconfirmed       uint64                // processes that were killed, and were not known to have ended two seconds later
	Survivors         uint64                // of the processes' processes, those that could not be ended
	RollsBegun        uint64
	Rolls             map[string]uint64 // by what has come of them: done, rolled back, degraded, interrupted; or paused, which is no end
	RouterErrors      uint64
	Log               LogStats
}

// A LogStats counts what the processes of a group have printed. Bytes are those of the log, with times and names.
type LogStats struct {
	Lines, Bytes               uint64 // that have been written
	DroppedLines, DroppedBytes uint64 // because the disk, or who reads the launcher's output, was too slow, or the disk full
}

// A Histogram counts durations.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	upTo  [len(bounds)]uint64
}

// bounds fit the figures that the protocol is measured by: half of the shutdowns within 2 s, all within 10 s, half of the
// starts within 5 s, 99 of 100 within 15 s.
var bounds = [...]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute}

// Buckets returns how many took no longer than each of the bounds.
func (h Histogram) Buckets() map[time.Duration]uint64 {
	all := map[time.Duration]uint64{}
	for i, b := range bounds {
		all[b] = h.upTo[i]
	}
	return all
}

func (h Histogram) with(d time.Duration) Histogram {
	h.Count++
	h.Sum += d
	for i, b := range bounds {
		if d <= b {
			h.upTo[i]++
		}
	}
	return h
}

// with returns the counts and one event more. The maps are shared, so the old value is of no use any more.
func (s GroupStats) with(e Event) GroupStats {
	switch e.Kind {
	case Transition:
		s = s.withTransition(e)
	case Restart:
		s.Restarts++
	case Extension:
		s.Extensions++
	case RollBegun:
		s.RollsBegun++
	case RollDone, RollFailed:
		if s.Rolls == nil {
			s.Rolls = map[string]uint64{}
		}
		result := e.Roll
		if !slices.Contains(rollResults, result) {
			result = rollResults[0] // it was under way
		}
		s.Rolls[result]++
	case RouterError:
		s.RouterErrors++
	case Alarm:
		if e.Outcome == Unconfirmed {
			s.Unconfirmed++
		}
	}
	return s
}

// rollResults are what a roll can come to.
var rollResults = []string{"interrupted", "done", "rolled back", "degraded", "paused"}

func (s GroupStats) withTransition(e Event) GroupStats {
	switch {
	case e.To == Spawning:
		s.Starts++
	case e.To == Ready:
		if e.Took > 0 {
			s.Startup = s.Startup.with(e.Took)
		}
	case e.To == Unhealthy && e.From == Ready:
		s.LivenessFailures++
	case (e.To == Unhealthy || e.To.Ended()) && e.From < Ready:
		s.ReadinessFailures++
	}
	if e.To.Ended() {
		if s.Ends == nil {
			s.Ends, s.Shutdowns = map[Outcome]uint64{}, map[Outcome]Histogram{}
		}
		s.Ends[e.Outcome]++
		s.Survivors += uint64(e.Survivors)
		if e.Took > 0 {
			s.Shutdowns[e.Outcome] = s.Shutdowns[e.Outcome].with(e.Took)
		}
	}
	return s
}

func (s GroupStats) clone() GroupStats {
	s.Ends, s.Shutdowns, s.Rolls = maps.Clone(s.Ends), maps.Clone(s.Shutdowns), maps.Clone(s.Rolls)
	return s
}

// Stats returns the counts as they are now.
func (m *Manager) Stats() Stats {
	s := m.events.snapshot()
	s.StateFailing = m.memory.failing.Load()
	for name, g := range s.Groups {
		c := m.logs.counted(name)
		g.Log = LogStats{Lines: c.Lines.Load(), Bytes: c.Bytes.Load(), DroppedLines: c.DroppedLines.Load(), DroppedBytes: c.DroppedBytes.Load()}
		s.Groups[name] = g
	}
	return s
}
