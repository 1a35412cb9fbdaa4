package main

import (
	"runtime"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
)

// A side prepares one of the two operations that a row compares. It returns the function that is
// timed, which does the operation n times. The preparations are not timed.
type side func() (timed func(n int))

// A row is one line of a table of results: an operation of this module, and what it is compared
// with.
type row struct {
	what  string
	peer  string // what a user without this module would use; "" if nothing else does the same
	ours  side
	their side
	limit float64 // the target: the maximum ratio of ours to theirs; 0: no target
	gate  float64 // the maximum ratio with the flag -gate; 0: one and a half times the field limit, if that is set

	// maxTime is the longest time, in nanoseconds, that the side ours may take. A row sets either
	// maxTime or limit. The flag -gate checks only ratios, so a row with a maxTime may set the
	// field gate, too.
	maxTime float64

	// alone is the operation of the peer in one goroutine, without contention; nil for rows that
	// are not about contention. A round counts only if contention makes the peer take at least
	// twice as long: on processors that are threads of one core, or take turns on one core, there
	// may be no contention.
	alone side

	allocs int  // our allocations per operation; rare if most operations allocate nothing; ignored if once is set
	once   bool // the timed function can be called only once after each preparation
	anew   bool // make new objects before each run, so that their addresses vary between runs
	each   int  // if once is set, the number of operations in the timed function; 0 means 1
	warm   bool // call the timed function once before it is timed, and after the garbage collection; see loopRows
	often  int  // a factor for the number of rounds; 0 means 1
	steady int  // a timed run lasts this many times as long as in other rows; 0 means 1

	// oneProcessor makes the flag -gate measure the row on one processor. Set it for operations
	// that run one after the other, but not together with alone. With two processors, the scheduler
	// sometimes moves one of the goroutines, or the garbage collector, to the second one. On a
	// virtual machine, the ratio then varies by a factor of two. The tables show the row with all
	// processors.
	oneProcessor bool
}

// rare is the value of the field allocs for an operation that allocates memory only now and then.
const rare = -1

// A result has the measurements of a row.
type result struct {
	row
	ourTime, theirTime float64 // medians for one operation, in nanoseconds
	ratio, low, high   float64 // median and quartiles of the ratios ours/theirs of each round
	calm, rough        float64 // quartiles of the spread that the host adds; see the function spread
	allocated          float64 // our allocations per operation
	counted            int     // number of rounds from which the figures come; see row.alone
}

const slice = 10 * time.Millisecond // the minimum length of a timed run

// measure runs the two sides alternately, so that a disturbance of the machine affects both, and
// compares the two runs of each round.
func measure(r row, rounds int) result {
	res := result{row: r}
	ours, theirs, alone := prepared(r, r.ours), prepared(r, r.their), prepared(r, r.alone)
	res.allocated = ours.allocs()
	var ourTimes, theirTimes, ratios []float64
	for _, order := range figures.Rounds(rounds, ours, theirs) {
		for _, p := range order {
			p.run()
		}
		alone.run()
		if r.alone != nil && theirs.last < 2*alone.last {
			continue
		}
		res.counted++
		ourTimes = append(ourTimes, ours.last)
		if r.their != nil {
			theirTimes = append(theirTimes, theirs.last)
			ratios = append(ratios, ours.last/theirs.last)
		}
	}
	if res.counted == 0 {
		return res
	}
	res.ourTime = figures.Median(ourTimes)
	if r.their != nil {
		res.theirTime = figures.Median(theirTimes)
		res.ratio, res.low, res.high = figures.Median(ratios), figures.Quantile(ratios, 0.25), figures.Quantile(ratios, 0.75)
		res.calm, res.rough = spread(theirTimes)
	} else {
		res.calm, res.rough = spread(ourTimes)
	}
	return res
}

// spread returns the quartiles of the ratios of each time to the time before it. All times are of
// the same operation, so the ratios differ from 1 only by the noise of the host. With fewer than
// two times, spread returns 1 and 1.
func spread(times []float64) (low, high float64) {
	ratios := []float64{}
	for i := 1; i < len(times); i++ {
		ratios = append(ratios, times[i]/times[i-1])
	}
	if len(ratios) == 0 {
		return 1, 1
	}
	return figures.Quantile(ratios, 0.25), figures.Quantile(ratios, 0.75)
}

type runner struct {
	side  side
	timed func(n int)
	n     int
	once  bool
	anew  bool
	warm  bool
	each  int
	last  float64 // nanoseconds per operation in the last run
}

func prepared(r row, s side) *runner {
	if s == nil {
		return &runner{}
	}
	p := &runner{side: s, n: 1, once: r.once, anew: r.anew, warm: r.warm, each: max(r.each, 1)}
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
	runtime.GC() // collects the garbage now, so that the next run does not collect that of the run before
	if p.warm {
		timed(p.n)
	}
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

// bytesEach calls keep n times and returns by how many bytes the live heap has grown per call.
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
	// the 16 bytes of each element of the slice kept are not counted
	return max(0, (after-before)/float64(n)-16)
}

// compare runs several sides alternately. It returns the median time of each for one operation, in
// nanoseconds, and the median of its ratios to the first side in each round. If a side is nil, its
// results are zero.
func compare(sides []side, rounds int) (times, ratios []float64) {
	runners := make([]*runner, len(sides))
	for i, s := range sides {
		if s != nil {
			runners[i] = prepared(row{}, s)
		}
	}
	all, ratio := make([][]float64, len(sides)), make([][]float64, len(sides))
	for _, order := range figures.Rounds(rounds, runners...) {
		for _, r := range order {
			if r != nil {
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
			times[i], ratios[i] = figures.Median(all[i]), figures.Median(ratio[i])
		}
	}
	return times, ratios
}
