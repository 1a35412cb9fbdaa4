/* Completion channels, latch.go. A channel is a number: 0 is nil, SHUT the one that is closed from the start. */
#define SHUT 1
#ifndef CHANS
#define CHANS 5
#endif

byte done[N];
bit latched[N];
bit closed[CHANS + 1];
byte made = SHUT;
bit ended[N]; /* the owner of a pinned scope has been told that it is complete */
bit given[N]; /* the signal of the scope has been given */

#define HELD(n) ((n) == 0 && HELD0 || (n) == 1 && HELD1 || (n) > 1 && held[n])

/* Nobody is woken for a guard that is held, or for a scope whose signal has not been given. */
inline wake(n) {
	d_step {
		assert(!HELD(n));
		assert(given[n]);
		closed[done[n]] = 1;
		latched[n] = 1
	}
}

#ifdef CLOSE_WHATEVER
inline look(n, v) {
	v = word[n];
	lock(mu[n]);
#else
inline look(n, v) {
	lock(mu[n]);
	v = word[n];
#endif
	if
	:: COMPLETE(v) && done[n] && !latched[n] -> wake(n)
	:: else
	fi;
	unlock(mu[n]);
#ifdef PINS
	if
	:: COMPLETE(v) && (v & PIN) -> ended[n] = 1
	:: else
	fi
#endif
}

#ifdef NO_PASS
inline pass(n) { skip }
#else
/* Lock, and unlock again: one step once mu is free. */
inline pass(n) { mu[n] == 0 }
#endif

/* What follows the look at the word touches nothing that is seen without mu: one step. */
inline Done(n, v, c) {
#ifdef CHECK_FIRST
	or(n, WATCH, v);
	lock(mu[n]);
#else
	lock(mu[n]);
	or(n, WATCH, v);
#endif
	d_step {
		if
#ifdef KEEP_CHANNEL
		:: done[n] -> c = done[n]
#else
		:: done[n] && latched[n] == COMPLETE(v) -> c = done[n]
#endif
		:: else ->
			if
			:: COMPLETE(v) -> c = SHUT
			:: else -> made++; assert(made <= CHANS); done[n] = made; latched[n] = 0; c = made
			fi
		fi;
		mu[n] = 0
	}
}

/* A channel that was there before anybody else moved. */
inline publish(n) { made++; done[n] = made; word[n] = word[n] | WATCH }

inline allClosed() {
	d_step {
		do
		:: made > SHUT -> assert(closed[made]); made--
		:: else -> break
		od
	}
}
