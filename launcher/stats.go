package launcher

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
)

// Stats counts what has happened since the launcher was started. It counts where events are
// published, because a watcher can miss events, and begins too late for those of the first
// processes.
type Stats struct {
	Groups       map[string]GroupStats // by name; contains only groups that have had an event
	EventsMissed uint64                // number of events that watchers were too slow to receive, for all watchers so far
	StateFailing bool                  // set while the state file cannot be written; the launcher tries again
}

// A GroupStats counts the events of a group. Package metrics exports it to Prometheus, except for
// ForcedAtStop and FailedAtStop.
type GroupStats struct {
	Starts            uint64                // number of attempts to start a process, including those that failed
	Restarts          uint64                // number of processes that failed and that the restart policy replaces
	ReadinessFailures uint64                // number of processes that became UNHEALTHY, or ended, before they became ready
	LivenessFailures  uint64                // number of processes that became UNHEALTHY after they had been ready
	Ends              map[Outcome]uint64    // number of processes that have been reaped, by outcome
	Startup           Histogram             // durations from the start of a process until it became ready
	Shutdowns         map[Outcome]Histogram // durations from the order to stop a process until it was reaped, by outcome
	Extensions        uint64                // number of requests of processes for more time
	Unconfirmed       uint64                // number of processes that had not been seen to end two seconds after SIGKILL
	Survivors         uint64                // number of descendants that could not be killed
	ForcedAtStop      uint64                // number of processes that were sent SIGTERM or SIGKILL at a deadline, and ended after the launcher itself was told to stop
	FailedAtStop      []string              // processes that failed after the launcher itself was told to stop, and how, as in "web-1: exit status 3"; texts of processes are cut to 200 characters
	RollsBegun        uint64
	Rolls             map[string]uint64 // number of rolls by result: done, rolled back, degraded, interrupted, superseded, or paused, which does not end the roll
	RouterErrors      uint64
	Log               LogStats
}

// A LogStats counts the output of the processes of a group. Bytes include the times and names that
// the log adds.
type LogStats struct {
	Lines, Bytes uint64 // numbers of lines and bytes that have been written
	// Lines are dropped because the disk is full, or because the disk or the reader of the
	// launcher's output is too slow.
	DroppedLines, DroppedBytes uint64
}

// A Histogram counts durations.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	upTo  [len(bounds)]uint64
}

// The bounds of the buckets of a Histogram include the targets of
// docs/measured/launcher-figures.md: half of the shutdowns within 2 s and all within 10 s, half of
// the starts within 5 s and 99 of 100 within 15 s.
var bounds = [...]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute}

// Buckets returns for each bound how many durations were at most that long.
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

// with returns s with one more event counted. The result shares its maps with s, which must not be
// used any more.
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
			result = rollResults[0] // e.Roll is the phase in which the roll was interrupted
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

// rollResults are the keys of GroupStats.Rolls.
var rollResults = []string{"interrupted", "done", "rolled back", "degraded", "paused", "superseded"}

func (s GroupStats) withTransition(e Event) GroupStats {
	switch {
	case e.To == Spawning:
		s.Starts++
	case e.To == Ready:
		if e.Took > 0 {
			s.Startup = s.Startup.with(e.Took)
		}
	case e.To == Unhealthy && e.WasReady:
		s.LivenessFailures++
	case (e.To == Unhealthy || e.To.Ended()) && e.From < Ready && !e.WasReady:
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
	s.Ends, s.Shutdowns, s.Rolls, s.FailedAtStop = maps.Clone(s.Ends), maps.Clone(s.Shutdowns), maps.Clone(s.Rolls), slices.Clone(s.FailedAtStop)
	return s
}

// A counter counts events by group.
type counter struct {
	mu     sync.Mutex
	groups map[string]GroupStats
}

// count counts an event. atStop is true if the event is the end of a process, and the launcher had
// been told to stop before that.
func (c *counter) count(e Event, atStop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.groups[e.Group].with(e)
	switch {
	case atStop && e.Forced:
		s.ForcedAtStop++
	case atStop && e.To == Crashed:
		s.FailedAtStop = append(s.FailedAtStop, e.Process+": "+lifecycle.Shorten(e.Message, 200))
	}
	c.groups[e.Group] = s
}

func (c *counter) snapshot() map[string]GroupStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	groups := map[string]GroupStats{}
	for name, g := range c.groups {
		groups[name] = g.clone()
	}
	return groups
}

// Stats returns the counts as they are now.
func (m *Manager) Stats() Stats {
	s := Stats{Groups: m.counter.snapshot(), EventsMissed: m.events.Missed(), StateFailing: m.host.StateFile.Failing()}
	for name, g := range s.Groups {
		c := m.host.Logs.Counts(name)
		g.Log = LogStats{Lines: c.Lines.Load(), Bytes: c.Bytes.Load(), DroppedLines: c.DroppedLines.Load(), DroppedBytes: c.DroppedBytes.Load()}
		s.Groups[name] = g
	}
	return s
}
