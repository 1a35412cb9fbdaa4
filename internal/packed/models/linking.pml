/* Nodes that are linked while a stop is under way. Two grandchildren of the root are unlinked at first. Each takes a guard
 * and releases it, while one process stops the root and one stops node STOPPED: the middle (1) or a grandchild (2), none
 * (0). MIDDLE_GUARD is a guard on the middle. SWEEP sweeps both lists at any time. AGAIN is a second guard on the first
 * grandchild, which is linked again after it was unlinked. SIBLING is a guard on the second grandchild. CANCELS stops a
 * grandchild after its guard. docs/internals/counting.md#linking
 */
#define QUIET
#include "protocol/node.pml"

#ifndef STOPPED
#define STOPPED 1
#endif

proctype child(byte n) {
	VARS;
	acquire2(n);
	release2(n);
#ifdef CANCELS
	stop2(n)
#endif
}

proctype middleGuard()  { VARS; acquire1(1); release1(1) }
proctype sweeper() { VARS; sweep1(); sweep0() }
proctype root()    { VARS; stop0() }
proctype other() {
	VARS;
#if STOPPED == 1
	stop1(1)
#else
	stop2(2)
#endif
}

init {
	atomic {
		begin();
		run child(2);
#ifdef AGAIN
		run child(2);
#endif
#ifdef SIBLING
		run child(3);
#endif
#ifdef MIDDLE_GUARD
		run middleGuard();
#endif
#ifdef SWEEP
		run sweeper();
#endif
		run root();
#if STOPPED
		run other()
#endif
	}
	_nr_pr == 2 -> assert(ALL_EMPTY && COMPLETE(word[0]))
}
