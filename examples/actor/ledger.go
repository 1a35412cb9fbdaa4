package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/eventloop"
)

// A ledger is an actor: only callbacks of its loop touch cents.
type ledger struct {
	loop   *eventloop.Loop
	pool   *eventloop.Pool
	limit  time.Duration // for an audit
	rounds int

	cents map[string]int64
}

// take has a command carried out, and answer called once: on the loop, or at once if the ledger takes on nothing any more.
func (l *ledger) take(command string, answer func(string)) {
	if !l.loop.Post(func() { l.do(strings.Fields(command), answer) }) {
		answer("refused, shutting down: " + command)
	}
}

func (l *ledger) do(words []string, answer func(string)) {
	switch {
	case len(words) == 3 && words[0] == "deposit":
		cents, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			answer(fmt.Sprintf("deposit: %q is no number of cents", words[2]))
			return
		}
		l.cents[words[1]] += cents
		answer(fmt.Sprintf("%s has %d", words[1], l.cents[words[1]]))
	case len(words) == 2 && words[0] == "balance":
		answer(fmt.Sprintf("%s has %d", words[1], l.cents[words[1]]))
	case len(words) == 2 && words[0] == "audit":
		l.audit(words[1], answer)
	default:
		answer(fmt.Sprintf("%q: want deposit NAME CENTS, balance NAME or audit NAME", strings.Join(words, " ")))
	}
}

// audit offloads. What the work needs goes with it as a copy, since the ledger goes on meanwhile.
func (l *ledger) audit(name string, answer func(string)) {
	cents, rounds := l.cents[name], l.rounds
	err := eventloop.OffloadTimeout(l.loop, l.pool, l.limit, func(ctx context.Context) (string, error) {
		return seal(ctx, name, cents, rounds)
	}, func(seal string, err error) { // on the loop again
		switch {
		case errors.Is(err, eventloop.ErrOffloadTimeout):
			answer(fmt.Sprintf("audit of %s: timed out", name))
		case err != nil:
			answer(fmt.Sprintf("audit of %s: %v", name, err))
		default:
			answer(fmt.Sprintf("audit of %s with %d: %s; it has %d now", name, cents, seal, l.cents[name]))
		}
	})
	if err != nil {
		answer(fmt.Sprintf("audit of %s: %v", name, err))
	}
}

// seal stands for whatever takes long. It looks at its context now and then, so that a time-out ends it.
func seal(ctx context.Context, name string, cents int64, rounds int) (string, error) {
	sum := sha256.Sum256([]byte(fmt.Sprint(name, cents)))
	for i := range rounds {
		if i%1000 == 0 && ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		sum = sha256.Sum256(sum[:])
	}
	return fmt.Sprintf("%x", sum[:4]), nil
}
