/* One scope of internal/packed, for models of at most three levels: 0 is the root, 1 its child, 2 and 3 are children of
 * 1. Every inline carries the name of the Go function it stands for, and the level of the scope it works on, because
 * Promela has no recursion: departed2 calls departed1 where Go calls itself. An acquisition is Count and Acquired, and a
 * release is Discount.
 *
 * Grain. A d_step, or a single assignment, is one atomic operation on a word, or one access to something that only the
 * holder of a mutex can see. A mutex is taken in a step of its own wherever the section behind it touches a word, since
 * words change under it. The two compare-and-swap loops, retract and the CAS of drop, are one step where the loop is
 * nothing but load, decide, swap: the decision falls at the last load, or at the swap that succeeded.
 *
 * What a model does not need is compiled out: LINKED (all scopes are linked from the start and stay so: no join, no
 * drop) and QUIET (no completion channels: look and the pass through mu are nothing). STRIPES adds the fold, fold.pml.
 */
#define ONE    1
#define KID    8
#define LIVE   64
#define ANN    128
#define LOOSE  256
#define KIN    512
#define PIN    1024
#define WATCH  2048
#define SIG    4096
#define WARNED 8192
#define LOCALS 7
#define FIELDS 63

#define EMPTY(v)    (((v) & FIELDS) == 0)
#define COMPLETE(v) (((v) & (LIVE | SIG | FIELDS)) == SIG)

#define N 4
#ifdef LINKED
#define BORN LIVE
#else
#define BORN (LIVE | LOOSE)
#endif

short word[N];
bit wk[N];      /* the walk mutex */
bit sealed[N];
bit mu[N];
bit closing[N];
bit listed[N];  /* in the parent's list; changes under the parent's mu, together with LOOSE */
byte held[N];   /* guards whose acquire has returned */

#define HELD0 (held[0] + held[1] + held[2] + held[3])
#define HELD1 (held[1] + held[2] + held[3])
#define CHILDLESS(n) ((n) != 1 || (!listed[2] && !listed[3]))

#define VARS short v0, v1, v2; bit ok, s1, s2, s3

inline add(n, d, v) { d_step { word[n] = word[n] + (d); v = word[n] } }
inline or(n, b, v)  { d_step { v = word[n]; word[n] = v | (b) } }
inline lock(m)      { d_step { m == 0 -> m = 1 } }
inline unlock(m)    { m = 0 }

#ifdef QUIET
inline look(n, v) { skip }
inline pass(n)    { skip }
#else
#include "latch.pml"
#endif

#ifdef LINKED
inline leave1(n) { skip }
inline leave2(n) { skip }
#else
#include "loose.pml"
#endif

/* The root. */

inline arrived0() {
	if
	:: v0 & LIVE
	:: else -> pass(0)
	fi
}

inline departed0() {
	if
	:: (v0 & LIVE) || !EMPTY(v0)
	:: else -> look(0, v0)
	fi
}

/* A child of the root. */

inline retract1(n) {
	d_step {
		ok = (word[n] & ANN) && EMPTY(word[n]);
		if
		:: ok -> word[n] = word[n] & ~ANN
		:: else
		fi
	}
	if
	:: ok -> ok = 0; add(0, -KID, v0); departed0()
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
inline undo1() { add(0, -KID, v0); departed0() }
inline undo2() { add(1, -KID, v1); departed1(1) }
#endif

#ifdef ANNOUNCE_FIRST
inline up1(n) {
	if
	:: v1 & (LIVE | ANN)
	:: else ->
		or(n, ANN, v1);
		if
		:: v1 & ANN
		:: else -> add(0, KID, v0); arrived0(); retract1(n)
		fi
	fi
}
#else
inline up1(n) {
	if
	:: v1 & (LIVE | ANN)
	:: else ->
		add(0, KID, v0);
		arrived0();
		or(n, ANN, v1);
		if
		:: v1 & ANN -> undo1()
		:: else -> recheck1(n)
		fi
	fi
}
#endif

inline arrived1(n) {
#ifndef LINKED
	if
	:: v1 & LOOSE -> join1(n); v1 = word[n]
	:: else
	fi;
#endif
	if
	:: v1 & LIVE
	:: else -> pass(n); up1(n)
	fi
}

inline departed1(n) {
	if
	:: (v1 & LIVE) || !EMPTY(v1)
	:: else -> look(n, v1); retract1(n); leave1(n)
	fi
}

inline acquire1(n) {
	add(n, ONE, v1);
	if
	:: (v1 & (LIVE | LOOSE)) == LIVE
	:: else -> arrived1(n)
	fi;
	held[n]++
}

inline release1(n) {
	d_step { held[n]--; word[n] = word[n] - ONE; v1 = word[n] }
	departed1(n)
}

/* A grandchild of the root. */

inline retract2(n) {
	d_step {
		ok = (word[n] & ANN) && EMPTY(word[n]);
		if
		:: ok -> word[n] = word[n] & ~ANN
		:: else
		fi
	}
	if
	:: ok -> ok = 0; add(1, -KID, v1); departed1(1)
	:: else
	fi
}

#ifdef ANNOUNCE_FIRST
inline up2(n) {
	if
	:: v2 & (LIVE | ANN)
	:: else ->
		or(n, ANN, v2);
		if
		:: v2 & ANN
		:: else -> add(1, KID, v1); arrived1(1); retract2(n)
		fi
	fi
}
#else
inline up2(n) {
	if
	:: v2 & (LIVE | ANN)
	:: else ->
		add(1, KID, v1);
		arrived1(1);
		or(n, ANN, v2);
		if
		:: v2 & ANN -> undo2()
		:: else -> recheck2(n)
		fi
	fi
}
#endif

inline arrived2(n) {
#ifndef LINKED
	if
	:: v2 & LOOSE -> join2(n); v2 = word[n]
	:: else
	fi;
#endif
	if
	:: v2 & LIVE
	:: else -> pass(n); up2(n)
	fi
}

inline departed2(n) {
	if
	:: (v2 & LIVE) || !EMPTY(v2)
	:: else -> look(n, v2); retract2(n); leave2(n)
	fi
}

inline acquire2(n) {
	add(n, ONE, v2);
	if
	:: (v2 & (LIVE | LOOSE)) == LIVE
	:: else -> arrived2(n)
	fi;
	held[n]++
}

inline release2(n) {
	d_step { held[n]--; word[n] = word[n] - ONE; v2 = word[n] }
	departed2(n)
}

/* Stop. The snapshot and the closing flag are seen by nobody without mu: one step, once mu is free. */

#ifdef EARLY_RETURN
/* A second stopper takes the first one's flag for its result. */
inline claim(n)  { d_step { ok = !sealed[n]; sealed[n] = 1 } }
inline settle(n) { skip }
#else
inline claim(n)  { lock(wk[n]); ok = !sealed[n] }
inline settle(n) { d_step { sealed[n] = 1; wk[n] = 0 } }
#endif

inline dead(n, v) { d_step { word[n] = word[n] & ~LIVE; v = word[n] } }

inline seal2(n) {
	claim(n);
	if
	:: !ok
	:: else ->
		ok = 0;
		dead(n, v2);
		if
		:: EMPTY(v2) -> departed2(n)
		:: else -> up2(n)
		fi
	fi;
	settle(n)
}

inline seal1(n) {
	claim(n);
	if
	:: !ok
	:: else ->
		ok = 0;
		d_step { mu[n] == 0 -> closing[n] = 1; s2 = listed[2]; s3 = listed[3] };
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
		dead(n, v1);
		if
		:: EMPTY(v1) -> departed1(n)
		:: else -> up1(n)
		fi
#ifdef FOLD_LAST
		; fold1()
#endif
	fi;
	settle(n)
}

inline seal0() {
	claim(0);
	if
	:: !ok
	:: else ->
		ok = 0;
		d_step { mu[0] == 0 -> closing[0] = 1; s1 = listed[1] };
		if
		:: s1 -> s1 = 0; seal1(1)
		:: else
		fi;
		dead(0, v0);
		departed0()
	fi;
	settle(0)
}

/* The one-step end of a scope that nobody knows. */
inline endLoose(n) {
	d_step {
		ok = (word[n] == (LIVE | LOOSE));
		if
		:: ok -> word[n] = LOOSE | SIG
		:: else
		fi
	}
}

inline stop2(n) {
	endLoose(n);
	if
	:: ok || (word[n] & SIG) -> ok = 0
	:: else ->
		seal2(n);
		word[n] = word[n] | SIG;
		look(n, v2);
		leave2(n)
	fi
}

inline stop1(n) {
	endLoose(n);
	if
	:: ok || (word[n] & SIG) -> ok = 0
	:: else ->
		seal1(n);
		word[n] = word[n] | SIG;
		look(n, v1);
		leave1(n)
	fi
}

inline stop0() {
	if
	:: word[0] & SIG
	:: else ->
		seal0();
		word[0] = word[0] | SIG;
		look(0, v0)
	fi
}

/* Who holds a guard is counted wherever somebody may ask, and asked for by a scope that is known above. Enabled in a
 * bad state only, so the monitor costs no states. */
#define MISSED0 (HELD0 && !(word[0] & LIVE) && EMPTY(word[0]))
#define MISSED1 (HELD1 && !(word[1] & LIVE) && EMPTY(word[1]))
#ifdef LINKED
#define ASTRAY 0
#else
#define LOST(n)  (held[n] && (word[n] & LOOSE))
#define UNTOLD(n, p) (held[n] && (word[n] & LIVE) && !(word[p] & LIVE))
#define ORPHAN(n) (!(word[n] & LOOSE) && (word[1] & LOOSE))
#define ASTRAY (LOST(1) || LOST(2) || LOST(3) || UNTOLD(1, 0) || UNTOLD(2, 1) || UNTOLD(3, 1) || ORPHAN(2) || ORPHAN(3))
#endif

active proctype monitor() {
end:
	if
	:: d_step { (MISSED0 || MISSED1) -> assert(false) }
	:: d_step { ASTRAY -> assert(false) }
	fi
}

/* Nothing is counted or announced any more. */
#define SETTLED (EMPTY(word[0]) && EMPTY(word[1]) && EMPTY(word[2]) && EMPTY(word[3]) && \
	!((word[1] | word[2] | word[3]) & ANN))

inline begin() {
	word[0] = LIVE;
	word[1] = BORN;
	word[2] = BORN;
	word[3] = BORN;
#ifdef LINKED
	listed[1] = 1; listed[2] = 1
#endif
}
