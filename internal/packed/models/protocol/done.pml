/* Completion channels, node.go. A channel is a number: 0 is nil, SHUT is the channel that is closed from the start.
 * docs/internals/counting.md#completions
 */
#define SHUT 1
#ifndef CHANS
#define CHANS 5
#endif

byte done[N];
bit closed[CHANS + 1];
byte made = SHUT;
bit workEnded[N]; /* OnComplete has ended the Work context of the scope */
bit cancelled[N]; /* the context of the scope has been cancelled: the stop was signalled */

#define GUARDS_BELOW(n) ((n) == 0 && GUARDS0 || (n) == 1 && GUARDS1 || (n) > 1 && guards[n])

/* A channel must not be closed while a guard is held below, or before the stop was signalled. */
inline closeDone(n) {
	d_step {
		assert(!GUARDS_BELOW(n));
		assert(cancelled[n]);
		closed[done[n]] = 1;
#ifndef KEEP_CHANNEL
		done[n] = 0
#endif
	}
}

#ifdef RESOLVE_READS_FIRST
inline resolve(n, v) {
	v = word[n];
	lock(mu[n]);
#else
inline resolve(n, v) {
	lock(mu[n]);
	v = word[n];
#endif
	if
	:: COMPLETE(v) && done[n] -> closeDone(n)
	:: else
	fi;
	unlock(mu[n]);
#ifdef WORK
	if
	:: COMPLETE(v) && (v & PINNED) -> workEnded[n] = 1
	:: else
	fi
#endif
}

#ifdef NO_WAIT
inline waitForResolve(n) { skip }
#else
/* Locking and unlocking again is one step, which is possible once mu is free. */
inline waitForResolve(n) { mu[n] == 0 }
#endif

/* The steps after reading the word access only data that is protected by mu, so they are one step. */
inline Done(n, v, c) {
#ifdef DONE_READS_FIRST
	or(n, AWAITED, v);
	lock(mu[n]);
#else
	lock(mu[n]);
	or(n, AWAITED, v);
#endif
	d_step {
		if
		:: COMPLETE(v) -> c = SHUT
		:: else ->
			if
			:: done[n] -> c = done[n]
			:: else -> made++; assert(made <= CHANS); done[n] = made; c = made
			fi
		fi;
		mu[n] = 0
	}
}

/* Gives n a channel before the other processes begin. */
inline createDone(n) { made++; done[n] = made; word[n] = word[n] | AWAITED }

inline allClosed() {
	d_step {
		do
		:: made > SHUT -> assert(closed[made]); made--
		:: else -> break
		od
	}
}
