/* A child under a Work context: 1 is sealed with the root, but its own signal is not given by the root's stop. Its guard
 * counts at the root, and its own channel stays open however empty it is. STOP stops the root. FORCE implies that; it
 * also gives the child's signal and stops it, or (WALK_ONLY) leaves it alone, and ends the Work of whoever is pinned
 * below the root. ASK has somebody ask the child for a channel, PINS has the child start a Work, and SWEEP tries to drop
 * it from the list, all at any time.
 */
#include "node.pml"

bit published; /* the child's Work is there for Force to find */
bit forced;
byte through; /* of the two below */

/* Work has ended once the Force and the start of it have returned, whoever came first, and guard or no guard. */
inline returned() { d_step { through++; assert(through < 2 || ended[1]) } }

proctype guard() { VARS; acquire1(1); release1(1) }

proctype asker() { VARS; byte c; Done(1, v1, c); assert(!closed[c] || given[1]) }

proctype stopper() { VARS; given[0] = 1; stop0() }

#ifdef SWEEP
proctype sweeper() { VARS; sweep0() }
#endif

#ifdef PINS
/* startWork */
proctype worker() {
	VARS;
#ifdef CHECK_BEFORE_PIN
	if
	:: forced -> ended[1] = 1
	:: else
	fi;
#endif
	published = 1;
	or(1, PIN, v1);
	if
	:: v1 & LOOSE -> join1(1)
	:: else
	fi;
#ifndef CHECK_BEFORE_PIN
	if
	:: forced -> ended[1] = 1
	:: else
	fi;
#endif
	if
	:: COMPLETE(word[1]) -> ended[1] = 1
	:: else
	fi;
	returned()
}
#endif

#ifdef FORCE
proctype force() {
	VARS;
	forced = 1;
	d_step { given[0] = 1; given[1] = 1 }; /* a hard signal below, see try.pml for the cascade */
#ifndef WALK_ONLY
	stop1(1);
#endif
	stop0();
	d_step { mu[0] == 0 -> s1 = listed[1] };
	if
	:: s1 && published -> ended[1] = 1
	:: else
	fi;
#ifdef PINS
	returned()
#endif
}
#endif

init {
	atomic {
		begin();
		publish(0);
		publish(1);
		run guard();
#ifdef ASK
		run asker();
#endif
#ifdef STOP
		run stopper();
#endif
#ifdef SWEEP
		run sweeper();
#endif
#ifdef PINS
		run worker();
#endif
#ifdef FORCE
		run force();
#endif
	}
	_nr_pr == 2;
	assert(SETTLED && COMPLETE(word[0]) && closed[2]);
#ifdef FORCE
#ifndef WALK_ONLY
	assert(COMPLETE(word[1]));
	allClosed();
#endif
#else
	assert(!COMPLETE(word[1]) && !closed[3] && !ended[1])
#endif
}
