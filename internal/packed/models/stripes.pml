/* Stripes. The middle node grows two stripes at any time. They are folded when a stop reaches the node (fold), or when the
 * root's list is swept (foldIfIdle); after that, with AGAIN, the node may grow two others. GUARDS guards come and go on
 * the node. Each is counted on a stripe, if there are stripes, or on the word. It is released there or, which the code
 * never does, where a new guard would be counted. One process stops the root and, with STOP_MIDDLE, one stops the middle.
 * SWEEP sweeps the root's list and CALL_DONE calls Done of the root, at any time. The middle is unlinked at first or,
 * with START_LINKED, linked. A process that has loaded the pointer to the stripes uses them, however late.
 *
 * Two things differ from the code: there are two stripes at a time, and a sweep folds the stripes of any node, not only
 * of one that appears idle. docs/internals/counting.md#stripes
 */
#define STRIPES
#include "protocol/node.pml"

#ifndef GUARDS
#define GUARDS 2
#endif

#define FOLDED 16

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

byte stripes; /* the pointer of the middle node: 0 is nil, 1 the first two stripes, 2 the others */
byte grown;
short cell[2 * GROWTHS];
short sum;

#ifdef GROW_LATE
#define SEALING 0
#else
#define SEALING sealing[1]
#endif

#ifdef GROW_UNLINKED
#define UNLINKED_BIT 0
#else
#define UNLINKED_BIT UNLINKED
#endif

/* The compare-and-swap loop is one step. New stripes are empty. */
inline grow1() {
	lock(mu[1]);
	d_step {
		ok = !stripes && !(SEALING) && (word[1] & (LIVE | UNLINKED_BIT)) == LIVE;
		if
		:: ok -> word[1] = word[1] + BIAS
		:: else
		fi
	}
	if
	:: ok -> ok = 0; d_step { grown++; stripes = grown }
	:: else
	fi;
	unlock(mu[1])
}

#ifdef READ_THEN_MARK
inline markFolded(i) { sum = sum + cell[i]; cell[i] = FOLDED }
#else
inline markFolded(i) { d_step { sum = sum + cell[i]; cell[i] = FOLDED } }
#endif

inline fold1() {
	if
	:: !stripes
	:: else ->
		lock(mu[1]);
		if
		:: !stripes
		:: else ->
			markFolded(2 * stripes - 2);
			markFolded(2 * stripes - 1);
			d_step {
#ifndef CONTROL
				/* Every release that is part of the sum belongs to an acquisition that is part of it. */
				assert((word[1] & GUARD_BITS) - BIAS + sum >= 0);
#endif
				word[1] = word[1] - BIAS + sum;
				sum = 0
			};
			stripes = 0
		fi;
		unlock(mu[1])
	fi
}

/* The caller holds the parent's mu. Whether the node appears idle is chosen at random. */
#ifdef FOLD_UNMARKED
inline foldIfIdle(n) {
	if
	:: n == 1 && stripes ->
		lock(mu[1]);
		if
		:: stripes && (word[1] & GUARD_BITS) - BIAS + cell[2 * stripes - 2] + cell[2 * stripes - 1] == 0 ->
			d_step { word[1] = word[1] & ~GUARD_BITS; stripes = 0 }
		:: else
		fi;
		unlock(mu[1])
	:: else
	fi
}
#else
inline foldIfIdle(n) {
	if
	:: n == 1 && stripes -> fold1()
	:: skip
	fi
}
#endif

#ifdef ACQUIRE_NO_REPEAT
#define ACQUIRED 1
#else
#define ACQUIRED (cell[i] < FOLDED / 2)
#endif

#ifdef RELEASE_NO_REPEAT
#define RELEASED 1
#else
#define RELEASED (cell[i] < FOLDED / 2)
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
	p = stripes;
	if
	:: p ->
		pick();
		d_step {
			cell[i] = cell[i] + 1;
			ok = ACQUIRED;
			guards[1] = guards[1] + ok
		}
		if
		:: ok -> ok = 0
		:: else -> acquire1(1)
		fi
	:: else -> acquire1(1)
	fi;
	if
	:: skip /* release on the stripe of the acquisition */
	:: p = stripes; /* or on the stripe that a new guard would use */
		if
		:: p -> pick()
		:: else
		fi
	fi;
	if
	:: p ->
		d_step {
			cell[i] = cell[i] - 1;
			ok = RELEASED;
			guards[1] = guards[1] - ok
		}
		if
		:: ok -> ok = 0
		:: else -> release1(1)
		fi
	:: else -> release1(1)
	fi
}

proctype grower() { VARS; grow1() }

proctype stopper() { VARS; cancelled[0] = 1; stop0() }

#ifdef STOP_MIDDLE
proctype other() { VARS; cancelled[1] = 1; stop1(1) }
#endif

#ifdef CALL_DONE
proctype asker() { VARS; byte c; Done(0, v0, c) }
#endif

#ifdef SWEEP
proctype sweeper() { VARS; sweep0() }
#endif

init {
	byte g;
	atomic {
		begin();
#ifdef START_LINKED
		listed[1] = 1;
		word[0] = LIVE | HAS_CHILDREN; word[1] = LIVE;
#endif
		createDone(0);
#ifdef STOP_MIDDLE
		createDone(1);
#endif
		do
		:: g < GUARDS -> run guard(); g++
		:: else -> break
		od;
		run grower();
#ifdef AGAIN
		run grower();
#endif
#ifdef STOP_MIDDLE
		run other();
#endif
#ifdef CALL_DONE
		run asker();
#endif
#ifdef SWEEP
		run sweeper();
#endif
		run stopper()
	}
	_nr_pr == 2;
	assert(ALL_EMPTY && COMPLETE(word[0]) && !stripes);
	allClosed()
}
