/* The nodes of internal/packed, for models with at most three levels: node 0 is the root, node 1 is its child, and nodes
 * 2 and 3 are children of node 1. Each inline has the name of the Go function that it models and the level of the node
 * that it works on: Promela has no recursion, so depart2 calls depart1 where depart calls itself in Go. acquire stands
 * for Count and FinishAcquire, release for Release.
 *
 * Granularity. A d_step, or a single assignment, is one atomic operation on a word, or one access to data that only the
 * holder of a mutex can see. Locking a mutex is a separate step if the critical section accesses a word, because other
 * processes change words meanwhile. A compare-and-swap loop that only loads, decides and swaps is one step: the decision
 * is made by the last load, or by the swap that succeeds.
 *
 * Parts that a model does not need are compiled out:
 *   LINKED   all nodes are linked from the start and stay linked
 *   QUIET    there are no completion channels
 *   STRIPES  seal1 folds stripes, see stripes.pml
 *
 * docs/internals/counting.md
 */
/* The bits of a word. */
#define GUARD        1    /* one guard */
#define CHILD        8    /* one announced child */
#define LIVE         64
#define ANNOUNCED    128
#define UNLINKED     256
#define HAS_CHILDREN 512
#define PINNED       1024
#define AWAITED      2048
#define SIGNALLED    4096
#define WARNED       8192
#define GUARD_BITS   7
#define COUNT_BITS   63

#define EMPTY(v)    (((v) & COUNT_BITS) == 0)
#define COMPLETE(v) (((v) & (LIVE | SIGNALLED | COUNT_BITS)) == SIGNALLED)

#define N 4
#ifdef LINKED
#define BORN LIVE
#else
#define BORN (LIVE | UNLINKED)
#endif

short word[N];
bit sealMu[N];
#ifdef EARLY_RETURN
bit sealed[N];
#endif
bit mu[N];
bit sealing[N];
bit listed[N];   /* in the parent's list; changes under the parent's mu, together with UNLINKED */
byte guards[N];  /* guards whose acquire has returned and whose release has not begun */

#define GUARDS0 (guards[0] + guards[1] + guards[2] + guards[3])
#define GUARDS1 (guards[1] + guards[2] + guards[3])
#define CHILDLESS(n) ((n) != 1 || (!listed[2] && !listed[3]))

#define VARS short v0, v1, v2; bit ok, s1, s2, s3

inline add(n, d, v) { d_step { word[n] = word[n] + (d); v = word[n] } }
inline or(n, b, v)  { d_step { v = word[n]; word[n] = v | (b) } }
inline lock(m)      { d_step { m == 0 -> m = 1 } }
inline unlock(m)    { m = 0 }

#ifdef QUIET
inline resolve(n, v) { skip }
inline waitForResolve(n)    { skip }
#else
#include "done.pml"
#endif

#ifdef LINKED
inline unlink1(n) { skip }
inline unlink2(n) { skip }
#else
#include "link.pml"
#endif

/* Operations on the root, node 0. */

inline arrive0() {
	if
	:: v0 & LIVE
	:: else -> waitForResolve(0)
	fi
}

inline depart0() {
	if
	:: (v0 & LIVE) || !EMPTY(v0)
	:: else -> resolve(0, v0)
	fi
}

/* Operations on node 1, the child of the root. */

inline retract1(n) {
	d_step {
		ok = (word[n] & ANNOUNCED) && EMPTY(word[n]);
		if
		:: ok -> word[n] = word[n] & ~ANNOUNCED
		:: else
		fi
	}
	if
	:: ok -> ok = 0; add(0, -CHILD, v0); depart0()
	:: else
	fi
}

#ifdef NO_RECHECK
inline recheck1(n) { skip }
inline recheck2(n) { skip }
#else
inline recheck1(n) { retract1(n) }
inline recheck2(n) { retract2(n) }
#endif

#ifdef NO_UNDO
inline undo1() { skip }
inline undo2() { skip }
#else
inline undo1() { add(0, -CHILD, v0); depart0() }
inline undo2() { add(1, -CHILD, v1); depart1(1) }
#endif

#ifdef ANNOUNCE_FIRST
inline announce1(n) {
	if
	:: v1 & (LIVE | ANNOUNCED)
	:: else ->
		or(n, ANNOUNCED, v1);
		if
		:: v1 & ANNOUNCED
		:: else -> add(0, CHILD, v0); arrive0(); retract1(n)
		fi
	fi
}
#else
inline announce1(n) {
	if
	:: v1 & (LIVE | ANNOUNCED)
	:: else ->
		add(0, CHILD, v0);
		arrive0();
		or(n, ANNOUNCED, v1);
		if
		:: v1 & ANNOUNCED -> undo1()
		:: else -> recheck1(n)
		fi
	fi
}
#endif

inline arrive1(n) {
#ifndef LINKED
	if
	:: v1 & UNLINKED -> link1(n); v1 = word[n]
	:: else
	fi;
#endif
	if
	:: v1 & LIVE
	:: else -> waitForResolve(n); announce1(n)
	fi
}

inline depart1(n) {
	if
	:: (v1 & LIVE) || !EMPTY(v1)
	:: else -> resolve(n, v1); retract1(n); unlink1(n)
	fi
}

inline acquire1(n) {
	add(n, GUARD, v1);
	if
	:: (v1 & (LIVE | UNLINKED)) == LIVE
	:: else -> arrive1(n)
	fi;
	guards[n]++
}

inline release1(n) {
	d_step { guards[n]--; word[n] = word[n] - GUARD; v1 = word[n] }
	depart1(n)
}

/* Operations on nodes 2 and 3, the grandchildren of the root. */

inline retract2(n) {
	d_step {
		ok = (word[n] & ANNOUNCED) && EMPTY(word[n]);
		if
		:: ok -> word[n] = word[n] & ~ANNOUNCED
		:: else
		fi
	}
	if
	:: ok -> ok = 0; add(1, -CHILD, v1); depart1(1)
	:: else
	fi
}

#ifdef ANNOUNCE_FIRST
inline announce2(n) {
	if
	:: v2 & (LIVE | ANNOUNCED)
	:: else ->
		or(n, ANNOUNCED, v2);
		if
		:: v2 & ANNOUNCED
		:: else -> add(1, CHILD, v1); arrive1(1); retract2(n)
		fi
	fi
}
#else
inline announce2(n) {
	if
	:: v2 & (LIVE | ANNOUNCED)
	:: else ->
		add(1, CHILD, v1);
		arrive1(1);
		or(n, ANNOUNCED, v2);
		if
		:: v2 & ANNOUNCED -> undo2()
		:: else -> recheck2(n)
		fi
	fi
}
#endif

inline arrive2(n) {
#ifndef LINKED
	if
	:: v2 & UNLINKED -> link2(n); v2 = word[n]
	:: else
	fi;
#endif
	if
	:: v2 & LIVE
	:: else -> waitForResolve(n); announce2(n)
	fi
}

inline depart2(n) {
	if
	:: (v2 & LIVE) || !EMPTY(v2)
	:: else -> resolve(n, v2); retract2(n); unlink2(n)
	fi
}

inline acquire2(n) {
	add(n, GUARD, v2);
	if
	:: (v2 & (LIVE | UNLINKED)) == LIVE
	:: else -> arrive2(n)
	fi;
	guards[n]++
}

inline release2(n) {
	d_step { guards[n]--; word[n] = word[n] - GUARD; v2 = word[n] }
	depart2(n)
}

/* Stop. Listing the children and setting sealing is one step, because both are only seen with mu held. */

#ifdef EARLY_RETURN
/* A second stopper returns as soon as the first one has begun. */
inline lockSeal(n)  { d_step { ok = !sealed[n]; sealed[n] = 1 } }
inline unlockSeal(n) { skip }
#else
inline lockSeal(n)  { lock(sealMu[n]); ok = (word[n] & LIVE) != 0 }
inline unlockSeal(n) { unlock(sealMu[n]) }
#endif

inline clearLive(n, v) { d_step { word[n] = word[n] & ~LIVE; v = word[n] } }

inline seal2(n) {
	lockSeal(n);
	if
	:: !ok
	:: else ->
		ok = 0;
		clearLive(n, v2);
		if
		:: EMPTY(v2) -> depart2(n)
		:: else -> announce2(n)
		fi
	fi;
	unlockSeal(n)
}

inline seal1(n) {
	lockSeal(n);
	if
	:: !ok
	:: else ->
		ok = 0;
		d_step { mu[n] == 0 -> sealing[n] = 1; s2 = listed[2]; s3 = listed[3] };
#ifdef SEAL_PARENT_FIRST
		word[n] = word[n] & ~LIVE;
#endif
		if
		:: s2 -> s2 = 0; seal2(2)
		:: else
		fi;
		if
		:: s3 -> s3 = 0; seal2(3)
		:: else
		fi;
#if defined(STRIPES) && !defined(FOLD_LAST)
		fold1();
#endif
		clearLive(n, v1);
		if
		:: EMPTY(v1) -> depart1(n)
		:: else -> announce1(n)
		fi
#ifdef FOLD_LAST
		; fold1()
#endif
	fi;
	unlockSeal(n)
}

inline seal0() {
	lockSeal(0);
	if
	:: !ok
	:: else ->
		ok = 0;
		d_step { mu[0] == 0 -> sealing[0] = 1; s1 = listed[1] };
		if
		:: s1 -> s1 = 0; seal1(1)
		:: else
		fi;
		clearLive(0, v0);
		depart0()
	fi;
	unlockSeal(0)
}

/* The fast path of Stop: an unlinked node is stopped by one compare-and-swap. */
inline stopUnlinked(n) {
	d_step {
		ok = (word[n] == (LIVE | UNLINKED));
		if
		:: ok -> word[n] = UNLINKED | SIGNALLED
		:: else
		fi
	}
}

inline stop2(n) {
	stopUnlinked(n);
	if
	:: ok || (word[n] & SIGNALLED) -> ok = 0
	:: else ->
		seal2(n);
		word[n] = word[n] | SIGNALLED;
		resolve(n, v2);
		unlink2(n)
	fi
}

inline stop1(n) {
	stopUnlinked(n);
	if
	:: ok || (word[n] & SIGNALLED) -> ok = 0
	:: else ->
		seal1(n);
		word[n] = word[n] | SIGNALLED;
		resolve(n, v1);
		unlink1(n)
	fi
}

inline stop0() {
	if
	:: word[0] & SIGNALLED
	:: else ->
		seal0();
		word[0] = word[0] | SIGNALLED;
		resolve(0, v0)
	fi
}

/* The monitor. A sealed node above a guard must not be empty. A node with a guard must be linked, sealed if its parent is,
 * and below a linked parent. The monitor can only move in a bad state, so it adds no states. */
#define MISSED0 (GUARDS0 && !(word[0] & LIVE) && EMPTY(word[0]))
#define MISSED1 (GUARDS1 && !(word[1] & LIVE) && EMPTY(word[1]))
#ifdef LINKED
#define LINKING_BROKEN 0
#else
#define GUARD_UNLINKED(n)  (guards[n] && (word[n] & UNLINKED))
#define LIVE_BELOW_SEALED(n, p) (guards[n] && (word[n] & LIVE) && !(word[p] & LIVE))
#define PARENT_UNLINKED(n) (!(word[n] & UNLINKED) && (word[1] & UNLINKED))
#define LINKING_BROKEN (GUARD_UNLINKED(1) || GUARD_UNLINKED(2) || GUARD_UNLINKED(3) || \
	LIVE_BELOW_SEALED(1, 0) || LIVE_BELOW_SEALED(2, 1) || LIVE_BELOW_SEALED(3, 1) || \
	PARENT_UNLINKED(2) || PARENT_UNLINKED(3))
#endif

active proctype monitor() {
end:
	if
	:: d_step { (MISSED0 || MISSED1) -> assert(false) }
	:: d_step { LINKING_BROKEN -> assert(false) }
	fi
}

/* No word counts anything, and no node is announced. */
#define ALL_EMPTY (EMPTY(word[0]) && EMPTY(word[1]) && EMPTY(word[2]) && EMPTY(word[3]) && \
	!((word[1] | word[2] | word[3]) & ANNOUNCED))

inline begin() {
	word[0] = LIVE;
	word[1] = BORN;
	word[2] = BORN;
	word[3] = BORN;
#ifdef LINKED
	listed[1] = 1; listed[2] = 1
#endif
}
