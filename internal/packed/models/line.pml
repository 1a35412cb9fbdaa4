/* The word protocol alone: root, middle and leaf, linked and staying so. Two guards come and go on the leaf and one on
 * the middle, one stopper stops the root and one STOPPED, the middle (1) or the leaf (2).
 */
#define LINKED
#define QUIET
#include "node.pml"

#ifndef STOPPED
#define STOPPED 1
#endif
#ifndef LEAFS
#define LEAFS 2
#endif

proctype leaf() { VARS; acquire2(2); release2(2) }
proctype mid()  { VARS; acquire1(1); release1(1) }
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
		run leaf();
#if LEAFS > 1
		run leaf();
#endif
#ifdef MID
		run mid();
#endif
		run root();
		run other()
	}
	_nr_pr == 2 -> assert(SETTLED && COMPLETE(word[0]) && COMPLETE(word[STOPPED]) && !(word[2] & LIVE))
}
