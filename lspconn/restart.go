package lspconn

import (
	"errors"
	"time"
)

// A Restart says when a Manager starts a server again that has failed. The zero value: never. A server is started by the
// next one who asks for it, not by itself, and whoever asks too early waits.
type Restart struct {
	Max   int           // so many times in a row; negative: without limit
	First time.Duration // the wait before the first; it doubles from one to the next. Zero means 1 s
	Limit time.Duration // the longest wait. Zero means 1 minute
	Reset time.Duration // a server that was up for so long begins anew. Zero means 10 minutes
}

func (r Restart) complete() (Restart, error) {
	if r.First < 0 || r.Limit < 0 || r.Reset < 0 {
		return r, errors.New("lspconn: Restart: durations must not be negative; zero means the default")
	}
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&r.First, time.Second)
	or(&r.Limit, time.Minute)
	or(&r.Reset, 10*time.Minute)
	return r, nil
}

// wait returns how long to wait before the nth restart in a row, from 1, or false if there is none.
func (r Restart) wait(n int) (time.Duration, bool) {
	if r.Max >= 0 && n > r.Max {
		return 0, false
	}
	d := r.First
	for range n - 1 {
		if d *= 2; d >= r.Limit || d <= 0 {
			break
		}
	}
	if d <= 0 || d > r.Limit {
		d = r.Limit
	}
	return d, true
}
