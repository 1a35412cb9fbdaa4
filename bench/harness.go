package main

import (
	"cmp"
	"fmt"
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
	once  bool    // the operation can be done once per preparation
}

// A result is what was measured for a row.
type result struct {
	row
	ourTime, theirTime time.Duration // medians for one operation
	ratio, low, high   float64       // median, and the middle half, of ours/theirs pair by pair
	allocs             float64       // ours, per operation
}

const slice = 10 * time.Millisecond // how long one timed run is meant to take

// measure runs both sides in turn, so that what disturbs the machine disturbs both, and compares them pair by pair.
func measure(r row, rounds int) result {
	res := result{row: r}
	ours, theirs := prepared(r, r.ours), prepared(r, r.their)
	res.allocs = ours.allocs()
	var ourTimes, theirTimes, ratios []float64
	for i := range rounds {
		first, second := ours, theirs
		if i%2 == 1 {
			first, second = second, first
		}
		first.run()
		second.run()
		ourTimes = append(ourTimes, ours.last)
		if r.their != nil {
			theirTimes = append(theirTimes, theirs.last)
			ratios = append(ratios, ours.last/theirs.last)
		}
	}
	res.ourTime = time.Duration(quantile(ourTimes, 0.5))
	if r.their != nil {
		res.theirTime = time.Duration(quantile(theirTimes, 0.5))
		res.ratio, res.low, res.high = quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75)
	}
	return res
}

type runner struct {
	side  side
	timed func(n int)
	n     int
	once  bool
	last  float64 // nanoseconds for one operation, of the last run
}

func prepared(r row, s side) *runner {
	if s == nil {
		return &runner{}
	}
	p := &runner{side: s, n: 1, once: r.once}
	if r.once {
		return p
	}
	p.timed = s()
	for p.run(); time.Duration(p.last*float64(p.n)) < slice; p.run() {
		p.n = max(p.n+1, min(p.n*10, int(1.2*float64(slice)/p.last)))
	}
	return p
}

func (p *runner) run() {
	if p.side == nil {
		return
	}
	timed := p.timed
	if p.once {
		timed = p.side()
	}
	runtime.GC() // each run pays for its own garbage
	start := time.Now()
	timed(p.n)
	p.last = float64(time.Since(start)) / float64(p.n)
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
	return (after-before)/float64(n) - 16 // without the slot in kept
}

func (r result) cells() []string {
	ratio, limit, theirs := "–", "–", "–"
	if r.their != nil {
		ratio = fmt.Sprintf("**%.2f ×** (%.2f–%.2f)", r.ratio, r.low, r.high)
		if r.high < 0.01 {
			ratio = "**< 0.01 ×**"
		}
		theirs = short(r.theirTime)
	}
	if r.limit > 0 {
		limit = fmt.Sprintf("≤ %.2f ×", r.limit)
	}
	allocs := "–" // of one run that does many things at once, the figure says nothing
	if !r.once {
		allocs = fmt.Sprintf("%.0f", r.allocs)
	}
	return []string{r.what, short(r.ourTime), cmp.Or(r.peer, "–"), theirs, ratio, limit, allocs}
}

func short(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.2f ms", float64(d)/1e6)
}
