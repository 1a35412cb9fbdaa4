package eventloop

import "sync"

// A jobQueue contains the jobs of a pool that no worker has taken, the oldest first. It stores them
// by value, so that a job takes no allocation. The mutex of the pool guards it. The zero value is
// empty.
type jobQueue struct {
	first, last *jobChunk
	head        int // the index of the oldest job in the first chunk
	tail        int // the number of used places in the last chunk
}

// A jobChunk takes two kilobytes.
type jobChunk struct {
	next *jobChunk
	jobs [127]job
}

// jobChunks holds empty chunks for the queues of all pools, as the variable chunks does for loops.
var jobChunks = sync.Pool{New: func() any { return new(jobChunk) }}

func (q *jobQueue) push(j job) {
	if q.last == nil || q.tail == len(q.last.jobs) {
		q.grow()
	}
	q.last.jobs[q.tail] = j
	q.tail++
}

func (q *jobQueue) grow() {
	c := jobChunks.Get().(*jobChunk)
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last, q.tail = c, 0
}

// pop removes the first job from the queue and returns it, or returns false if the queue is empty.
// An empty queue keeps a chunk.
func (q *jobQueue) pop() (j job, ok bool) {
	c := q.first
	if c == nil || c == q.last && q.head == q.tail {
		return job{}, false
	}
	j = c.jobs[q.head]
	c.jobs[q.head] = job{} // lets the garbage collector free what the job has captured
	q.head++
	switch {
	case c == q.last && q.head == q.tail:
		q.head, q.tail = 0, 0
	case q.head == len(c.jobs):
		q.first, q.head, c.next = c.next, 0, nil
		jobChunks.Put(c)
	}
	return j, true
}
