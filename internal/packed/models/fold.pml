/* Stripes, stripes.go. The middle scope spreads its guards over two stripes at any time, and folds them when a stop
 * reaches it, or gathers them when the root's list is swept; then (AGAIN) it may spread them again, over two others.
 * GUARDS guards come and go on it. Each is counted on whichever stripe there is then, or on the word, and is given back there;
 * or, which the code does not do, where it would be counted now. One stopper stops the root, OTHER the middle itself. SWEEP
 * sweeps the root's list and ASK asks the root for a channel, at any time. The middle is loose in the beginning, or
 * (KNOWN) linked.
 *
 * Whoever has read the pointer to the stripes goes by what it said, however late.
 */
#define STRIPES
#include "node.pml"

#ifndef GUARDS
#define GUARDS 2
#endif

#define SEALED 16

#ifdef NO_BIAS
#define BIAS 0
#else
#define BIAS 4
#endif

#ifdef AGAIN
#define GROWTHS 2
#else
#define GROWTHS 1
#endif

byte spread; /* the pointer of the middle scope: 0 is nil, 1 the first two stripes, 2 the others */
byte grown;
short stripe[2 * GROWTHS];
short sum;

#ifdef GROW_LATE
#define CLOSING 0
#else
#define CLOSING closing[1]
#endif

#ifdef GROW_LOOSE
#define ALONE 0
#else
#define ALONE LOOSE
#endif

/* One step for the compare-and-swap loop, as everywhere. The stripes are new, so they are empty. */
inline grow1() {
	lock(mu[1]);
	d_step {
		ok = !spread && !(CLOSING) && (word[1] & (LIVE | ALONE)) == LIVE;
		if
		:: ok -> word[1] = word[1] + BIAS
		:: else
		fi
	}
	if
	:: ok -> ok = 0; d_step { grown++; spread = grown }
	:: else
	fi;
	unlock(mu[1])
}

#ifdef TAKE_THEN_SEAL
inline take(i) { sum = sum + stripe[i]; stripe[i] = SEALED }
#else
inline take(i) { d_step { sum = sum + stripe[i]; stripe[i] = SEALED } }
#endif

inline fold1() {
	if
	:: !spread
	:: else ->
		lock(mu[1]);
		if
		:: !spread
		:: else ->
			take(2 * spread - 2);
			take(2 * spread - 1);
			d_step {
#ifndef CONTROL
				/* Releases that were counted were of guards that were counted. */
				assert((word[1] & LOCALS) - BIAS + sum >= 0);
#endif
				word[1] = word[1] - BIAS + sum;
				sum = 0
			};
			spread = 0
		fi;
		unlock(mu[1])
	fi
}

/* Called with the parent's mu held. Whether the scope looks idle is a hint, and here anybody's guess. */
#ifdef GATHER_UNMARKED
inline gather(n) {
	if
	:: n == 1 && spread ->
		lock(mu[1]);
		if
		:: spread && (word[1] & LOCALS) - BIAS + stripe[2 * spread - 2] + stripe[2 * spread - 1] == 0 ->
			d_step { word[1] = word[1] & ~LOCALS; spread = 0 }
		:: else
		fi;
		unlock(mu[1])
	:: else
	fi
}
#else
inline gather(n) {
	if
	:: n == 1 && spread -> fold1()
	:: skip
	fi
}
#endif

#ifdef ACQUIRE_ONCE
#define ACQUIRED 1
#else
#define ACQUIRED (stripe[i] < SEALED / 2)
#endif

#ifdef RELEASE_ONCE
#define RELEASED 1
#else
#define RELEASED (stripe[i] < SEALED / 2)
#endif

inline pick() {
	if
	:: i = 2 * p - 2
	:: i = 2 * p - 1
	fi
}

proctype guard() {
	VARS;
	byte i, p;
	p = spread;
	if
	:: p ->
		pick();
		d_step {
			stripe[i] = stripe[i] + 1;
			ok = ACQUIRED;
			held[1] = held[1] + ok
		}
		if
		:: ok -> ok = 0
		:: else -> acquire1(1)
		fi
	:: else -> acquire1(1)
	fi;
	if
	:: skip /* p and i are remembered */
	:: p = spread;
		if
		:: p -> pick()
		:: else
		fi
	fi;
	if
	:: p ->
		d_step {
			stripe[i] = stripe[i] - 1;
			ok = RELEASED;
			held[1] = held[1] - ok
		}
		if
		:: ok -> ok = 0
		:: else -> release1(1)
		fi
	:: else -> release1(1)
	fi
}

proctype grower() { VARS; grow1() }

proctype stopper() { VARS; given[0] = 1; stop0() }

#ifdef OTHER
proctype other() { VARS; given[1] = 1; stop1(1) }
#endif

#ifdef ASK
proctype asker() { VARS; byte c; Done(0, v0, c) }
#endif

#ifdef SWEEP
proctype sweeper() { VARS; sweep0() }
#endif

init {
	byte g;
	atomic {
		begin();
#ifdef KNOWN
		listed[1] = 1;
		word[0] = LIVE | KIN; word[1] = LIVE;
#endif
		publish(0);
#ifdef OTHER
		publish(1);
#endif
		do
		:: g < GUARDS -> run guard(); g++
		:: else -> break
		od;
		run grower();
#ifdef AGAIN
		run grower();
#endif
#ifdef OTHER
		run other();
#endif
#ifdef ASK
		run asker();
#endif
#ifdef SWEEP
		run sweeper();
#endif
		run stopper()
	}
	_nr_pr == 2;
	assert(SETTLED && COMPLETE(word[0]) && !spread);
	allClosed()
}
