/* Warnings. One process stops the root, or with MIDDLE the middle: it warns the linked descendants, cancels the contexts,
 * which reaches the scopes one by one, and stops the tree. Meanwhile a process calls TryGuard on the grandchild, and one
 * on node WHERE if that is not 0. It does not ask the context if its addition, or a second look at the word, proves that
 * it came before the warning.
 *
 * A TryGuard that succeeds must have been counted before its scope was signalled. SWEEP sweeps both lists at any time.
 * AGAIN is a second process that stops the root. docs/internals/counting.md#warning
 */
#define QUIET
#define WARNINGS
#include "protocol/node.pml"

#ifndef WHERE
#define WHERE 0
#endif

#ifdef LINKED
#define HAS_LINKED(v) 1
#else
#define HAS_LINKED(v) ((v) & HAS_CHILDREN)
#endif

bit cancelled[N];

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
		:: HAS_LINKED(v1) ->
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
/* If the flag is set already, the descendants are taken to be warned. */
#define MUST_WALK(v) (HAS_LINKED(v) && !((v) & WARNED))
#else
#define MUST_WALK(v) HAS_LINKED(v)
#endif
inline warn0() {
	if
	:: !(word[0] & LIVE)
	:: else ->
		or(0, WARNED, v0);
		if
		:: MUST_WALK(v0) ->
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

/* A second call returns when the first has cancelled all contexts: see tryguard.pml for their mutexes. */
bit contextMu;
inline signal0() {
	lock(contextMu);
	cancelled[0] = 1;
	cancelled[1] = 1;
	cancelled[2] = 1;
	unlock(contextMu)
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
	cancelled[1] = 1;
	cancelled[2] = 1;
	stop1(1)
}

#ifdef SWEEP
proctype sweeper() { VARS; sweep1(); sweep0() }
#endif

#define BEFORE_WARNING(v) (((v) & (LIVE | UNLINKED | WARNED)) == LIVE)

proctype try2() {
	VARS;
	bit late, beforeWarning;
	d_step { late = cancelled[2]; word[2] = word[2] + GUARD; v2 = word[2]; beforeWarning = BEFORE_WARNING(v2) };
	if
	:: (v2 & (LIVE | UNLINKED)) == LIVE
	:: else -> arrive2(2)
	fi;
	if
	:: !beforeWarning -> beforeWarning = BEFORE_WARNING(word[2])
	:: else
	fi;
	if
	:: !beforeWarning && cancelled[2] -> add(2, -GUARD, v2); depart2(2)
	:: else ->
		d_step { guards[2]++; assert(!late) };
		release2(2)
	fi
}

proctype try1() {
	VARS;
	bit late, beforeWarning;
	d_step { late = cancelled[1]; word[1] = word[1] + GUARD; v1 = word[1]; beforeWarning = BEFORE_WARNING(v1) };
	if
	:: (v1 & (LIVE | UNLINKED)) == LIVE
	:: else -> arrive1(1)
	fi;
	if
	:: !beforeWarning -> beforeWarning = BEFORE_WARNING(word[1])
	:: else
	fi;
	if
	:: !beforeWarning && cancelled[1] -> add(1, -GUARD, v1); depart1(1)
	:: else ->
		d_step { guards[1]++; assert(!late) };
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
	_nr_pr == 2 -> assert(ALL_EMPTY && COMPLETE(word[0]))
}
