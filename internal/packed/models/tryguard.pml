/* TryGuard, and stops that begin with a context. The signal is a chain of contexts of package context: cancelling one sets
 * its error and then cancels the contexts below it, one by one, while it holds its mutex. Here a deadline cancels the
 * context of the root, without any code of this module. An observer sees the error, cancels the context once more, which
 * waits for the cascade, and then stops the tree. Two processes call TryGuard on the node at level DEPTH.
 *
 * A TryGuard that succeeds must have been counted before its scope was signalled, and must have begun before the root
 * completed. One that is refused is a full release: if it is the last one, it must resolve the completion of the root.
 * docs/internals/counting.md#signalled-and-sealed
 */
#include "protocol/node.pml"

#ifndef DEPTH
#define DEPTH 1
#endif

bit contextMu[N]; /* the mutexes of the contexts, in package context */

/* On a context that is cancelled already, this only waits until the process that cancels it has finished. */
inline cancel0() {
	lock(contextMu[0]);
	if
	:: cancelled[0]
	:: else ->
		cancelled[0] = 1;
		lock(contextMu[1]);
		cancelled[1] = 1;
#if DEPTH == 2
		lock(contextMu[2]);
		cancelled[2] = 1;
		unlock(contextMu[2]);
#endif
		unlock(contextMu[1])
	fi;
	unlock(contextMu[0])
}

proctype deadline() { cancel0() }

proctype observer() {
	VARS;
	cancelled[0];
#ifndef STOP_BEFORE_CASCADE
	contextMu[0] == 0; /* lock, find the error set, unlock */
#endif
	stop0()
}

#if DEPTH == 2
#define S 2
#define V v2
#define ARRIVE arrive2(2)
#define DEPART depart2(2)
#define RELEASE release2(2)
#else
#define S 1
#define V v1
#define ARRIVE arrive1(1)
#define DEPART depart1(1)
#define RELEASE release1(1)
#endif

proctype try() {
	VARS;
	bit cancelledBefore, completeBefore, late;
	d_step { cancelledBefore = cancelled[S]; completeBefore = closed[2] };
	if
	:: !(word[S] & LIVE) && cancelled[S] -> goto refused
	:: else
	fi;
#ifdef CHECK_BEFORE_COUNT
	if
	:: cancelled[S] -> goto refused
	:: else
	fi;
#endif
	d_step { late = cancelled[S]; word[S] = word[S] + GUARD; V = word[S] };
	if
	:: (V & (LIVE | UNLINKED)) == LIVE
	:: else -> ARRIVE
	fi;
#ifndef CHECK_BEFORE_COUNT
	if
	:: cancelled[S] ->
#ifdef BARE_DECREMENT
		word[S] = word[S] - GUARD; /* without depart: the completion is not resolved */
#else
		add(S, -GUARD, V);
		DEPART;
#endif
		goto refused
	:: else
	fi;
#endif
	d_step { guards[S]++; assert(!cancelledBefore && !completeBefore && !late) };
	RELEASE;
refused:
	skip
}

init {
	atomic {
		begin();
		createDone(0);
		run try();
#if TRIES > 1
		run try();
#endif
		run deadline();
		run observer()
	}
	_nr_pr == 2;
	assert(ALL_EMPTY && COMPLETE(word[0]));
	allClosed()
}
