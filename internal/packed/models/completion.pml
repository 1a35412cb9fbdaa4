/* Completion channels. One guard is held before the stop. Another one is acquired and released at any time, before the
 * stop or as a late guard; while it is held, Done of the root must return an open channel that stays open. A third
 * process calls Done at any time. At the end, every channel must be closed. DEPTH is the level of the node with the
 * guards. docs/internals/counting.md#completions
 */
#include "protocol/node.pml"

#ifndef DEPTH
#define DEPTH 2
#endif

proctype early() {
	VARS;
#if DEPTH == 2
	release2(2)
#else
	release1(1)
#endif
}

proctype late() {
	VARS;
	byte c;
#if DEPTH == 2
	acquire2(2);
	Done(0, v0, c);
	assert(!closed[c]);
	release2(2)
#else
	acquire1(1);
	Done(0, v0, c);
	assert(!closed[c]);
	release1(1)
#endif
}

proctype waiter() { VARS; byte c; Done(0, v0, c) }

proctype stopper() { VARS; cancelled[0] = 1; stop0() }

init {
	atomic {
		begin();
#if DEPTH == 2
		listed[1] = 1; listed[2] = 1;
		word[0] = LIVE | HAS_CHILDREN; word[1] = LIVE | HAS_CHILDREN; word[2] = LIVE | GUARD; guards[2] = 1;
#else
		listed[1] = 1;
		word[0] = LIVE | HAS_CHILDREN; word[1] = LIVE | GUARD; guards[1] = 1;
#endif
		run early();
		run late();
		run waiter();
		run stopper()
	}
	_nr_pr == 2;
	assert(ALL_EMPTY && COMPLETE(word[0]));
	allClosed()
}
