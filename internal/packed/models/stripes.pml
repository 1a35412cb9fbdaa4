/* Stripes. The middle node grows two stripes at any time. They are folded when a stop reaches the node (fold), or when the
 * root's list is swept (foldIfIdle, which is `fold` of a sweep); after that, with AGAIN, the node may grow two others. GUARDS guards come and go on
 * the node. Each is counted on a stripe, if there are stripes, or on the word. It is released there or, which the code
 * never does, where a new guard would be counted. One process stops the root and, with STOP_MIDDLE, one stops the middle.
 * SWEEP sweeps the root's list and CALL_DONE calls Done of the root, at any time. The middle is unlinked at first or,
 * with START_LINKED, linked. A process that has loaded the pointer to the stripes uses them, however late.
 *
 * TRY is a process that calls TryGuard on the middle. Then a stop warns the nodes, before it signals and stops them; with
 * STOP_MIDDLE, that is the stop of the middle. A TryGuard that is counted on a stripe looks at the word for the warning.
 *
 * Two things differ from the code: there are two stripes at a time, and a sweep folds the stripes of any node, not only
 * of one that appears idle. docs/internals/counting.md#stripes
 */
#define STRIPES
#ifdef TRY
#define WARNINGS
#endif
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

#ifdef TRY
#define BEFORE_WARNING(v) (((v) & (LIVE | UNLINKED | WARNED)) == LIVE)

#ifdef STRIPE_PROVES
#define STRIPE_ANSWER 1
#else
#define STRIPE_ANSWER 0
#endif

proctype try() {
	VARS;
	byte i, p;
	bit late, beforeWarning;
	p = stripes;
	if
	:: p ->
		pick();
		d_step { late = cancelled[1]; cell[i] = cell[i] + 1; ok = ACQUIRED; beforeWarning = STRIPE_ANSWER }
	:: else
	fi;
	if
	:: ok -> ok = 0
	:: else ->
		p = 0;
		d_step { late = cancelled[1]; word[1] = word[1] + GUARD; v1 = word[1]; beforeWarning = BEFORE_WARNING(v1) };
		if
		:: (v1 & (LIVE | UNLINKED)) == LIVE
		:: else -> arrive1(1)
		fi
	fi;
	if
	:: !beforeWarning -> beforeWarning = BEFORE_WARNING(word[1])
	:: else
	fi;
	if
	:: beforeWarning || !cancelled[1] -> d_step { assert(!late); guards[1]++; ok = 1 }
	:: else
	fi;
	if
	:: p ->
		d_step {
			cell[i] = cell[i] - 1;
			s1 = RELEASED;
			guards[1] = guards[1] - (ok && s1)
		}
		if
		:: s1 -> s1 = 0; goto released
		:: else
		fi
	:: else
	fi;
	d_step { guards[1] = guards[1] - ok; word[1] = word[1] - GUARD; v1 = word[1] }
	depart1(1);
released:
	ok = 0
}

inline warn1() {
	if
	:: !(word[1] & LIVE)
	:: else -> or(1, WARNED, v1)
	fi
}

inline warn0() {
	or(0, WARNED, v0);
	if
	:: v0 & HAS_CHILDREN ->
		d_step { mu[0] == 0 -> s1 = listed[1] };
		if
		:: s1 -> s1 = 0; warn1()
		:: else
		fi
	:: else
	fi
}
#endif

#ifdef TRY
#ifdef WARN_LATE
proctype stopper() { VARS; cancelled[0] = 1; cancelled[1] = 1; warn0(); stop0() }
#else
proctype stopper() { VARS; warn0(); cancelled[0] = 1; cancelled[1] = 1; stop0() }
#endif
#else
proctype stopper() { VARS; cancelled[0] = 1; stop0() }
#endif

proctype grower() { VARS; grow1() }

#ifdef STOP_MIDDLE
#ifdef TRY
proctype other() { VARS; warn1(); cancelled[1] = 1; stop1(1) }
#else
proctype other() { VARS; cancelled[1] = 1; stop1(1) }
#endif
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
#ifdef TRY
		run try();
#endif
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
