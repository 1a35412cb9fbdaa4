package roll

import "time"

// A Version tells the instances that a roll brings from those that were there before.
type Version int

const (
	Old Version = iota // whatever is not New
	New
)

func (v Version) String() string { return [...]string{"old", "new"}[v] }

// Health is how an instance is.
type Health int

const (
	Starting  Health = iota // lives, or is about to, and does not take on work yet
	Ready                   // takes on work
	Unhealthy               // did not become ready in time, or has ceased to be; it will not come back
	Stopping                // has been told to stop, and exists until it is reaped
)

// An Instance is a process of the group that exists. One that has ended is not listed, and one that is about to be
// restarted by the restart policy is Starting.
type Instance struct {
	ID      string
	Version Version
	Health  Health
	Since   time.Duration // when it became Ready
}

// A View is what there is. Instants are durations on a monotonic clock of the caller's.
type View struct {
	Now       time.Duration
	Instances []Instance // those that have existed for longest come first, and are replaced first

	// Failures counts, by version, the instances that since the roll began have become Unhealthy, or have ended without
	// having been told to. It never falls. An instance counts once.
	Failures [2]int
}

// A census counts instances, by version.
type census struct {
	exist     [2]int // all
	live      [2]int // all but those that are stopping
	hale      [2]int // of those, all that are not unhealthy
	available [2]int // ready for long enough
}

func tally(c Config, v View) (n census) {
	for _, i := range v.Instances {
		n.exist[i.Version]++
		if i.Health != Stopping {
			n.live[i.Version]++
			if i.Health != Unhealthy {
				n.hale[i.Version]++
			}
		}
		if i.available(c, v) {
			n.available[i.Version]++
		}
	}
	return n
}

func (n census) all() int { return n.exist[Old] + n.exist[New] }

func (i Instance) available(c Config, v View) bool { return i.readyFor(c.MinReady, v) }

func (i Instance) readyFor(d time.Duration, v View) bool {
	return i.Health == Ready && v.Now-i.Since >= d
}
