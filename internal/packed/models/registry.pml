/* Children born loose. Two grandchildren come to life under the stop of the root and of WHO (1 the middle, 2 a
 * grandchild): each takes a guard and gives it back. PASSER is a guard on the middle, SWEEP a sweep of both lists at any
 * time, AGAIN a second guard on the first grandchild, which joins again after it was dropped.
 */
#define QUIET
#include "node.pml"

#ifndef WHO
#define WHO 1
#endif

proctype kid(byte n) {
	VARS;
	acquire2(n);
	release2(n);
#ifdef CANCELS
	stop2(n)
#endif
}

proctype passer()  { VARS; acquire1(1); release1(1) }
proctype sweeper() { VARS; sweep1(); sweep0() }
proctype root()    { VARS; stop0() }
proctype other() {
	VARS;
#if WHO == 1
	stop1(1)
#else
	stop2(2)
#endif
}

init {
	atomic {
		begin();
		run kid(2);
#ifdef AGAIN
		run kid(2);
#endif
#ifdef SIBLING
		run kid(3);
#endif
#ifdef PASSER
		run passer();
#endif
#ifdef SWEEP
		run sweeper();
#endif
		run root();
#if WHO
		run other()
#endif
	}
	_nr_pr == 2 -> assert(SETTLED && COMPLETE(word[0]))
}
