/* Tries. The signal is a chain of standard contexts: cancelling one sets its error and then, holding its mutex, cancels
 * those below, one by one. Somebody cancels the root's (a deadline: none of our code runs); an observer that sees the
 * error waits for the cascade by cancelling once more, then stops the tree. Two tries on the scope at level DEPTH.
 *
 * A try that succeeded was counted before the signal of its scope was given, and begun before the root completed. One
 * that was refused is a full release: it may be the last one, and wakes whoever waits for the root.
 */
#include "node.pml"

#ifndef DEPTH
#define DEPTH 1
#endif

bit std[N]; /* the mutexes of the standard contexts */

/* Returns at once on a context that has ended, but not before who ends it is through. */
inline cancel0() {
	lock(std[0]);
	if
	:: given[0]
	:: else ->
		given[0] = 1;
		lock(std[1]);
		given[1] = 1;
#if DEPTH == 2
		lock(std[2]);
		given[2] = 1;
		unlock(std[2]);
#endif
		unlock(std[1])
	fi;
	unlock(std[0])
}

proctype deadline() { cancel0() }

proctype observer() {
	VARS;
	given[0];
#ifndef HASTY
	std[0] == 0; /* lock, find the error set, unlock */
#endif
	stop0()
}

#if DEPTH == 2
#define S 2
#define V v2
#define ARRIVED arrived2(2)
#define DEPARTED departed2(2)
#define RELEASE release2(2)
#else
#define S 1
#define V v1
#define ARRIVED arrived1(1)
#define DEPARTED departed1(1)
#define RELEASE release1(1)
#endif

proctype try() {
	VARS;
	bit seen, over, late;
	d_step { seen = given[S]; over = closed[2] };
	if
	:: !(word[S] & LIVE) && given[S] -> goto refused
	:: else
	fi;
#ifdef CHECK_BEFORE_COUNT
	if
	:: given[S] -> goto refused
	:: else
	fi;
#endif
	d_step { late = given[S]; word[S] = word[S] + ONE; V = word[S] };
	if
	:: (V & (LIVE | LOOSE)) == LIVE
	:: else -> ARRIVED
	fi;
#ifndef CHECK_BEFORE_COUNT
	if
	:: given[S] ->
#ifdef BARE
		word[S] = word[S] - ONE; /* takes back the count, and tells nobody */
#else
		add(S, -ONE, V);
		DEPARTED;
#endif
		goto refused
	:: else
	fi;
#endif
	d_step { held[S]++; assert(!seen && !over && !late) };
	RELEASE;
refused:
	skip
}

init {
	atomic {
		begin();
		publish(0);
		run try();
#if TRIES > 1
		run try();
#endif
		run deadline();
		run observer()
	}
	_nr_pr == 2;
	assert(SETTLED && COMPLETE(word[0]));
	allClosed()
}
