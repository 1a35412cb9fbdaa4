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
	limit  time.Duration // an audit may take this long
	rounds int           // number of SHA-256 rounds in an audit

	cents map[string]int64 // balance of each account
}

// execute executes a command and calls answer once with its result. The call is made on the loop,
// or by execute itself if the loop has been stopped.
func (l *ledger) execute(command string, answer func(string)) {
	if !l.loop.Post(func() { l.executeOnLoop(strings.Fields(command), answer) }) {
		answer("refused, shutting down: " + command)
	}
}

// executeOnLoop executes a command. It must be called on the loop.
func (l *ledger) executeOnLoop(words []string, answer func(string)) {
	switch {
	case len(words) == 3 && words[0] == "deposit":
		cents, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			answer(fmt.Sprintf("deposit: %q is not a number of cents", words[2]))
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

// audit offloads the audit of an account to the pool. The offloaded function receives copies of the
// values that it needs, because the loop may change the ledger while it runs.
func (l *ledger) audit(name string, answer func(string)) {
	cents, rounds := l.cents[name], l.rounds
	err := eventloop.OffloadTimeout(l.loop, l.pool, l.limit, func(ctx context.Context) (string, error) {
		return fingerprint(ctx, name, cents, rounds)
	}, func(sum string, err error) { // the loop calls this function when the audit has ended
		switch {
		case errors.Is(err, eventloop.ErrOffloadTimeout):
			answer(fmt.Sprintf("audit of %s: timed out", name))
		case err != nil:
			answer(fmt.Sprintf("audit of %s: %v", name, err))
		default:
			answer(fmt.Sprintf("audit of %s with %d: %s; it has %d now", name, cents, sum, l.cents[name]))
		}
	})
	if err != nil {
		answer(fmt.Sprintf("audit of %s: %v", name, err))
	}
}

// fingerprint stands for a long computation. It checks ctx periodically, so that a timeout ends it.
func fingerprint(ctx context.Context, name string, cents int64, rounds int) (string, error) {
	sum := sha256.Sum256([]byte(fmt.Sprint(name, cents)))
	for i := range rounds {
		if i%1000 == 0 && ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		sum = sha256.Sum256(sum[:])
	}
	return fmt.Sprintf("%x", sum[:4]), nil
}
