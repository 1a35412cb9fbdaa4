package main

import (
	"runtime"
	"slices"
	"time"
)

// A side is one of the two things that a row compares. It prepares whatever is not timed and returns what is: a
// function that does the operation n times.
type side func() (timed func(n int))

// A row is one line of the table.
type row struct {
	what  string
	peer  string // what a user would otherwise use; empty where nothing else does the job
	ours  side
	their side
	limit float64 // ours may cost this many times theirs; 0: not stated
	gate  float64 // the ratio at which the gate closes; 0: one and a half times the limit, if there is one

	// Instead of limit, targets in nanoseconds, which the gate leaves alone: it goes by ratios. A row with most may have one,
	// of a row with more there is another with a ratio.
	more float64 // so many more than theirs
	most float64 // so many

	// alone is the peer without the contention that the row is about; nil: it is about none. Where the processors are two
	// threads of one core, or take turns on one, nobody contends, so a round counts only if the peer takes twice as long.
	alone side

	allocs int  // ours, per operation; not looked at if rare or once
	once   bool // the operation can be done once per preparation
	anew   bool // prepared for each run, so that where its objects happen to lie in memory is not the same for all of them
	each   int  // what is done once counts as so many; 0: one
	often  int  // there are so many times as many rounds; 0: one
	steady int  // timed runs are so many times as long as others; 0: one
}

// rare is for operations that allocate now and then, or in part.
const rare = -1

// A result is what was measured for a row.
type result struct {
	row
	ourTime, theirTime float64 // medians for one operation, in nanoseconds
	ratio, low, high   float64 // median, and the middle half, of ours/theirs pair by pair; where more is set, of ours-theirs
	allocated          float64 // ours, per operation
	counted            int     // rounds
}

const slice = 10 * time.Millisecond // how long one timed run is meant to take

// measure runs both sides in turn, so that what disturbs the machine disturbs both, and compares them pair by pair.
func measure(r row, rounds int) result {
	res := result{row: r}
	ours, theirs, alone := prepared(r, r.ours), prepared(r, r.their), prepared(r, r.alone)
	res.allocated = ours.allocs()
	var ourTimes, theirTimes, ratios []float64
	for i := range rounds {
		first, second := ours, theirs
		if i%2 == 1 {
			first, second = second, first
		}
		first.run()
		second.run()
		alone.run()
		if r.alone != nil && theirs.last < 2*alone.last {
			continue
		}
		res.counted++
		ourTimes = append(ourTimes, ours.last)
		if r.their != nil {
			theirTimes = append(theirTimes, theirs.last)
			if r.more > 0 {
				ratios = append(ratios, ours.last-theirs.last)
			} else {
				ratios = append(ratios, ours.last/theirs.last)
			}
		}
	}
	if res.counted == 0 {
		return res
	}
	res.ourTime = quantile(ourTimes, 0.5)
	if r.their != nil {
		res.theirTime = quantile(theirTimes, 0.5)
		res.ratio, res.low, res.high = quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75)
	}
	return res
}

type runner struct {
	side  side
	timed func(n int)
	n     int
	once  bool
	anew  bool
	each  int
	last  float64 // nanoseconds for one operation, of the last run
}

func prepared(r row, s side) *runner {
	if s == nil {
		return &runner{}
	}
	p := &runner{side: s, n: 1, once: r.once, anew: r.anew, each: max(r.each, 1)}
	if r.once {
		return p
	}
	p.timed = s()
	long := slice * time.Duration(max(r.steady, 1))
	for p.run(); time.Duration(p.last*float64(p.n)) < long; p.run() {
		p.n = max(p.n+1, min(p.n*10, int(1.2*float64(long)/p.last)))
	}
	return p
}

func (p *runner) run() {
	if p.side == nil {
		return
	}
	timed := p.timed
	if p.once || p.anew {
		timed = p.side()
	}
	runtime.GC() // each run pays for its own garbage
	start := time.Now()
	timed(p.n)
	p.last = float64(time.Since(start)) / float64(p.n*p.each)
}

func (p *runner) allocs() float64 {
	timed := p.timed
	if p.once {
		timed = p.side()
	}
	n := p.n
	if !p.once {
		n = 1000
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	timed(n)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n)
}

func quantile(xs []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[int(q*float64(len(s)-1)+0.5)]
}

// bytesEach returns the live heap per kept object.
func bytesEach(n int, keep func() any) float64 {
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	kept := make([]any, n)
	for i := range kept {
		kept[i] = keep()
	}
	after := heap()
	runtime.KeepAlive(kept)
	return max(0, (after-before)/float64(n)-16) // without the slot in kept
}

// compare runs several sides in turn. It returns the median of each for one operation in nanoseconds, and its median ratio
// to the first one pair by pair. Sides that are nil have zeros.
func compare(sides []side, rounds int) (times, ratios []float64) {
	runners := make([]*runner, len(sides))
	for i, s := range sides {
		if s != nil {
			runners[i] = prepared(row{}, s)
		}
	}
	all, ratio := make([][]float64, len(sides)), make([][]float64, len(sides))
	for round := range rounds {
		for k := range runners { // another one first each time
			if r := runners[(k+round)%len(runners)]; r != nil {
				r.run()
			}
		}
		for i, r := range runners {
			if r != nil {
				all[i] = append(all[i], r.last)
				ratio[i] = append(ratio[i], r.last/runners[0].last)
			}
		}
	}
	times, ratios = make([]float64, len(sides)), make([]float64, len(sides))
	for i, r := range runners {
		if r != nil {
			times[i], ratios[i] = quantile(all[i], 0.5), quantile(ratio[i], 0.5)
		}
	}
	return times, ratios
}
