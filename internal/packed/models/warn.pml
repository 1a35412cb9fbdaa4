/* Warnings, warn.go. Somebody stops the root, or the middle: he warns what is linked below, gives the signals, which reach
 * the scopes one by one, and stops the tree. A try on the grandchild, and one on WHERE if it is not 0, come to life meanwhile;
 * where the addition has found no warning, or a look at the word after it, they do not ask for the signal.
 *
 * A try that succeeded was counted before the signal of its scope was given. SWEEP is a sweep of both lists at any time,
 * AGAIN a second stopper, of the root.
 */
#define QUIET
#define WARN
#include "node.pml"

#ifndef WHERE
#define WHERE 0
#endif

#ifdef LINKED
#define HAS_KIN(v) 1
#else
#define HAS_KIN(v) ((v) & KIN)
#endif

bit given[N];

inline warn2(n) {
	if
	:: !(word[n] & LIVE)
	:: else -> or(n, WARNED, v2)
	fi
}

inline warn1(n) {
	if
	:: !(word[n] & LIVE)
	:: else ->
		or(n, WARNED, v1);
		if
		:: HAS_KIN(v1) ->
			d_step { mu[n] == 0 -> s2 = listed[2] };
			if
			:: s2 -> s2 = 0; warn2(2)
			:: else
			fi
		:: else
		fi
	fi
}

#ifdef LIST_FIRST
inline warn0() {
	d_step { mu[0] == 0 -> s1 = listed[1] };
	word[0] = word[0] | WARNED;
	if
	:: s1 -> s1 = 0; warn1(1)
	:: else
	fi
}
#else
#ifdef WARNED_IS_DONE
/* Whoever finds the bit set takes it that all below have been warned. */
#define TO_BE_WALKED(v) (HAS_KIN(v) && !((v) & WARNED))
#else
#define TO_BE_WALKED(v) HAS_KIN(v)
#endif
inline warn0() {
	if
	:: !(word[0] & LIVE)
	:: else ->
		or(0, WARNED, v0);
		if
		:: TO_BE_WALKED(v0) ->
			d_step { mu[0] == 0 -> s1 = listed[1] };
			if
			:: s1 -> s1 = 0; warn1(1)
			:: else
			fi
		:: else
		fi
	fi
}
#endif

/* One that has been given already is not given again, and is everywhere by then: see try.pml for the mutexes. */
bit std;
inline signal0() {
	lock(std);
	given[0] = 1;
	given[1] = 1;
	given[2] = 1;
	unlock(std)
}

proctype root() {
	VARS;
#ifdef WARN_LATE
	signal0();
	warn0();
#else
	warn0();
	signal0();
#endif
	stop0()
}

proctype middle() {
	VARS;
	warn1(1);
	given[1] = 1;
	given[2] = 1;
	stop1(1)
}

#ifdef SWEEP
proctype sweeper() { VARS; sweep1(); sweep0() }
#endif

#define SURE(v) (((v) & (LIVE | LOOSE | WARNED)) == LIVE)

proctype try2() {
	VARS;
	bit late, sure;
	d_step { late = given[2]; word[2] = word[2] + ONE; v2 = word[2]; sure = SURE(v2) };
	if
	:: (v2 & (LIVE | LOOSE)) == LIVE
	:: else -> arrived2(2)
	fi;
	if
	:: !sure -> sure = SURE(word[2])
	:: else
	fi;
	if
	:: !sure && given[2] -> add(2, -ONE, v2); departed2(2)
	:: else ->
		d_step { held[2]++; assert(!late) };
		release2(2)
	fi
}

proctype try1() {
	VARS;
	bit late, sure;
	d_step { late = given[1]; word[1] = word[1] + ONE; v1 = word[1]; sure = SURE(v1) };
	if
	:: (v1 & (LIVE | LOOSE)) == LIVE
	:: else -> arrived1(1)
	fi;
	if
	:: !sure -> sure = SURE(word[1])
	:: else
	fi;
	if
	:: !sure && given[1] -> add(1, -ONE, v1); departed1(1)
	:: else ->
		d_step { held[1]++; assert(!late) };
		release1(1)
	fi
}

init {
	atomic {
		begin();
		run try2();
#if WHERE == 1
		run try1();
#elif WHERE == 2
		run try2();
#endif
#ifdef SWEEP
		run sweeper();
#endif
#ifdef MIDDLE
		run middle();
#endif
#ifdef AGAIN
		run root();
#endif
		run root()
	}
	_nr_pr == 2 -> assert(SETTLED && COMPLETE(word[0]))
}
