/* A child whose context derives from Work, and Force. Node 1 is sealed together with the root, but the stop of the root
 * does not signal it. Its guard counts at the root, and its own channel stays open although it is empty.
 *
 * STOP stops the root. FORCE stops the root, too; it also signals the child and stops it (not with WALK_ONLY), and ends
 * the Work contexts of the nodes that it finds below the root. CALL_DONE calls Done of the child, WORK starts the Work of
 * the child, which pins it, and SWEEP tries to unlink the child, all at any time. docs/internals/core.md#semantic-5
 */
#include "protocol/node.pml"

bit published; /* Force can find the Work of the child */
bit forced;
byte returnedCalls; /* of Force and of the start of Work */

/* Work must have ended once both Force and the start of Work have returned, in either order, even if a guard is held. */
inline returned() { d_step { returnedCalls++; assert(returnedCalls < 2 || workEnded[1]) } }

proctype guard() { VARS; acquire1(1); release1(1) }

proctype asker() { VARS; byte c; Done(1, v1, c); assert(!closed[c] || cancelled[1]) }

proctype stopper() { VARS; cancelled[0] = 1; stop0() }

#ifdef SWEEP
proctype sweeper() { VARS; sweep0() }
#endif

#ifdef WORK
/* startWork */
proctype worker() {
	VARS;
#ifdef CHECK_BEFORE_PIN
	if
	:: forced -> workEnded[1] = 1
	:: else
	fi;
#endif
	published = 1;
	or(1, PINNED, v1);
	if
	:: v1 & UNLINKED -> link1(1)
	:: else
	fi;
#ifndef CHECK_BEFORE_PIN
	if
	:: forced -> workEnded[1] = 1
	:: else
	fi;
#endif
	if
	:: COMPLETE(word[1]) -> workEnded[1] = 1
	:: else
	fi;
	returned()
}
#endif

#ifdef FORCE
proctype force() {
	VARS;
	forced = 1;
	d_step { cancelled[0] = 1; cancelled[1] = 1 }; /* cancels the Work of the root; see tryguard.pml for the cascade */
#ifndef WALK_ONLY
	stop1(1);
#endif
	stop0();
	d_step { mu[0] == 0 -> s1 = listed[1] };
	if
	:: s1 && published -> workEnded[1] = 1
	:: else
	fi;
#ifdef WORK
	returned()
#endif
}
#endif

init {
	atomic {
		begin();
		createDone(0);
		createDone(1);
		run guard();
#ifdef CALL_DONE
		run asker();
#endif
#ifdef STOP
		run stopper();
#endif
#ifdef SWEEP
		run sweeper();
#endif
#ifdef WORK
		run worker();
#endif
#ifdef FORCE
		run force();
#endif
	}
	_nr_pr == 2;
	assert(ALL_EMPTY && COMPLETE(word[0]) && closed[2]);
#ifdef FORCE
#ifndef WALK_ONLY
	assert(COMPLETE(word[1]));
	allClosed();
#endif
#else
	assert(!COMPLETE(word[1]) && !closed[3] && !workEnded[1])
#endif
}
