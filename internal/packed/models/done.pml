/* Completions. A guard is held from before the stop, another one is taken and released at any time, before the stop or
 * late; who holds it asks the root for a channel and must not see it closed before the release. A third party asks at
 * any time. At the end every channel handed out is closed. DEPTH is the level of the guards' scope.
 */
#include "node.pml"

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

proctype stopper() { VARS; given[0] = 1; stop0() }

#ifdef BOTH
proctype other() { VARS; given[1] = 1; stop1(1) }
#endif

init {
	atomic {
		begin();
#if DEPTH == 2
		listed[1] = 1; listed[2] = 1;
		word[0] = LIVE | KIN; word[1] = LIVE | KIN; word[2] = LIVE | ONE; held[2] = 1;
#else
		listed[1] = 1;
		word[0] = LIVE | KIN; word[1] = LIVE | ONE; held[1] = 1;
#endif
#ifdef BOTH
		publish(1);
		run other();
#endif
		run early();
		run late();
#ifdef LATE2
		run late();
#endif
		run waiter();
		run stopper()
	}
	_nr_pr == 2;
	assert(SETTLED && COMPLETE(word[0]));
	allClosed()
}
