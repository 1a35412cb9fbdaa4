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
	loop  *eventloop.Loop
	pool  *eventloop.Pool
	limit time.Duration // time limit of an audit

	// compute does the work of an audit, on a worker of the pool. It gets copies of the values that
	// it needs, because the loop may change the ledger meanwhile.
	compute func(ctx context.Context, name string, cents int64) (string, error)

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

// audit offloads the audit of an account to the pool.
func (l *ledger) audit(name string, answer func(string)) {
	cents := l.cents[name]
	err := eventloop.OffloadTimeout(l.loop, l.pool, l.limit, func(ctx context.Context) (string, error) {
		return l.compute(ctx, name, cents)
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

// fingerprint returns a function that stands for a long computation: it computes SHA-256 as many
// times as rounds says. The function checks ctx periodically, so that a timeout ends it.
func fingerprint(rounds int) func(ctx context.Context, name string, cents int64) (string, error) {
	return func(ctx context.Context, name string, cents int64) (string, error) {
		sum := sha256.Sum256([]byte(fmt.Sprint(name, cents)))
		for i := range rounds {
			if i%1000 == 0 && ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			sum = sha256.Sum256(sum[:])
		}
		return fmt.Sprintf("%x", sum[:4]), nil
	}
}
