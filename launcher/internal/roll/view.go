package roll

import "time"

// A Version says whether an instance was there before the roll or was brought by it.
type Version int

const (
	Old Version = iota // the instance has another revision than the one that the roll leads to
	New
)

func (v Version) String() string { return [...]string{"old", "new"}[v] }

// Health is the condition of an instance.
type Health int

const (
	Starting  Health = iota // the instance runs or is about to run, and takes on no work yet
	Ready                   // the instance takes on work
	Unhealthy               // the instance did not become ready in time, or is no longer ready; it does not recover
	Stopping                // the instance was told to stop; it exists until it has been reaped
)

// An Instance is an existing process of the group. A process that has ended is not listed. One that
// the restart policy is about to restart is listed as Starting.
type Instance struct {
	ID       string
	Revision int     // revision of the instance; the methods of Roll set Version from it
	Version  Version // set by the methods of Roll, for the functions Next and Keep
	Health   Health
	Since    time.Duration // when the instance became Ready
}

// A View is the group as the caller sees it. Instants are durations on a monotonic clock of the
// caller.
type View struct {
	Now       time.Duration
	Instances []Instance // the instances, oldest first; the oldest are replaced first

	// NoOldStart says that no old instance may be started in place of one that has failed: it is
	// too early after the failure, or the group was given up.
	NoOldStart bool

	// Failures is the number of instances of each version, old and new, that have become Unhealthy
	// since the roll began, or have ended although they were not told to. An instance counts once,
	// and the numbers never fall. The methods of Roll set Failures.
	Failures [2]int

	// Rejected says that the canaries have failed their check. If they have passed a check,
	// PassedAt is the time at which the last such check began; otherwise it is 0. The methods of
	// Roll set both.
	Rejected bool
	PassedAt time.Duration
}

// A census counts instances by version.
type census struct {
	exist     [2]int // how many instances exist, in any state
	live      [2]int // how many are not stopping
	usable    [2]int // how many are neither stopping nor unhealthy
	available [2]int // how many have been ready for MinReady
}

func count(c Config, v View) (n census) {
	for _, i := range v.Instances {
		n.exist[i.Version]++
		if i.Health != Stopping {
			n.live[i.Version]++
			if i.Health != Unhealthy {
				n.usable[i.Version]++
			}
		}
		if i.isAvailable(c, v) {
			n.available[i.Version]++
		}
	}
	return n
}

func (n census) all() int { return n.exist[Old] + n.exist[New] }

func (i Instance) isAvailable(c Config, v View) bool { return i.isReadyFor(c.MinReady, v) }

func (i Instance) isReadyFor(d time.Duration, v View) bool {
	return i.Health == Ready && v.Now-i.Since >= d
}
