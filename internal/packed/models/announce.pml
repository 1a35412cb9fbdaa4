/* Announcing and sealing: root, middle and leaf, which are linked from the start and stay linked. LEAF_GUARDS guards come
 * and go on the leaf and, with MIDDLE_GUARD, one on the middle. One process stops the root, and one stops node STOPPED:
 * the middle (1) or the leaf (2). docs/internals/counting.md#arrival
 */
#define LINKED
#define QUIET
#include "protocol/node.pml"

#ifndef STOPPED
#define STOPPED 1
#endif
#ifndef LEAF_GUARDS
#define LEAF_GUARDS 2
#endif

proctype leafGuard() { VARS; acquire2(2); release2(2) }
proctype middleGuard()  { VARS; acquire1(1); release1(1) }
proctype root() { VARS; stop0() }
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
		run leafGuard();
#if LEAF_GUARDS > 1
		run leafGuard();
#endif
#ifdef MIDDLE_GUARD
		run middleGuard();
#endif
		run root();
		run other()
	}
	_nr_pr == 2 -> assert(ALL_EMPTY && COMPLETE(word[0]) && COMPLETE(word[STOPPED]) && !(word[2] & LIVE))
}
