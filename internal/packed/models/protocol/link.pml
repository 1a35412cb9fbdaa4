/* The list of linked children, link.go: a node is linked for its first guard, and unlinked when it is idle.
 * docs/internals/counting.md#linking
 */

#ifdef LINK_UNSEALED
#define BITS_TO_CLEAR(p, v) UNLINKED
#else
#define BITS_TO_CLEAR(p, v) ((sealing[p] || !((v) & LIVE)) -> (UNLINKED | LIVE) : UNLINKED)
#endif

#ifdef LINK_WARNED_LATE
inline push(n, p, v) {
	d_step { listed[n] = 1; word[n] = word[n] & ~(BITS_TO_CLEAR(p, v)) };
	if
	:: v & WARNED -> word[n] = word[n] | WARNED
	:: else
	fi
}
#elif defined(WARNINGS) && !defined(LINK_UNWARNED)
inline push(n, p, v) {
	if
	:: v & WARNED -> word[n] = word[n] | WARNED
	:: else
	fi;
	d_step { listed[n] = 1; word[n] = word[n] & ~(BITS_TO_CLEAR(p, v)) }
}
#else
inline push(n, p, v) { d_step { listed[n] = 1; word[n] = word[n] & ~(BITS_TO_CLEAR(p, v)) } }
#endif

inline link1(n) {
	lock(mu[0]);
	if
	:: !(word[n] & UNLINKED)
	:: else ->
		word[0] = word[0] | HAS_CHILDREN;
		v0 = word[0];
		push(n, 0, v0)
	fi;
	unlock(mu[0])
}

inline link2(n) {
	do
	:: lock(mu[1]);
		if
		:: !(word[n] & UNLINKED) -> unlock(mu[1]); break
		:: else ->
#ifdef LINK_NO_BIT
			v1 = word[1];
#else
			or(1, HAS_CHILDREN, v1);
#endif
			if
#ifndef LINK_ALONE
			:: v1 & UNLINKED -> unlock(mu[1]); link1(1)
#endif
			:: else ->
				v1 = word[1];
				push(n, 1, v1);
				unlock(mu[1]);
				break
			fi
		fi
	od
}

#ifdef DEEP
/* Idle children of n are removed first, under the mu of n. They have no children themselves. */
inline removeIdleChild(k) {
	if
	:: listed[k] ->
		do
		:: v2 = word[k];
			if
			:: (v2 & (UNLINKED | ANNOUNCED | PINNED)) || !EMPTY(v2) -> break
			:: else ->
				d_step {
					ok = (word[k] == v2);
					if
					:: ok -> word[k] = v2 | UNLINKED; listed[k] = 0
					:: else
					fi
				}
				if
				:: ok -> ok = 0; break
				:: else
				fi
			fi
		od
	:: else
	fi
}
inline removeIdleChildren(n) {
	if
	:: n == 1 -> removeIdleChild(2); removeIdleChild(3)
	:: else
	fi
}
#else
inline removeIdleChildren(n) { skip }
#endif

/* The caller holds the parent's mu. */
inline removeIdle(n, v) {
#ifdef STRIPES
	foldIfIdle(n);
#endif
	do
	:: v = word[n];
		if
#ifdef UNLINK_PINNED
		:: (v & (UNLINKED | ANNOUNCED)) || !EMPTY(v) -> break
#elif defined(UNLINK_WITH_GUARDS)
		:: (v & (UNLINKED | ANNOUNCED | PINNED)) -> break
#else
		:: (v & (UNLINKED | ANNOUNCED | PINNED)) || !EMPTY(v) -> break
#endif
		:: else ->
#ifndef UNLINK_WITH_CHILDREN
			if
			:: v & HAS_CHILDREN ->
				lock(mu[n]);
				removeIdleChildren(n);
				if
				:: CHILDLESS(n) -> word[n] = word[n] & ~HAS_CHILDREN; unlock(mu[n])
				:: else -> unlock(mu[n]); break
				fi
			:: else ->
#endif
				d_step {
					ok = (word[n] == v);
					if
					:: ok -> word[n] = v | UNLINKED; listed[n] = 0
					:: else
					fi
				}
				if
				:: ok -> ok = 0; break
				:: else
				fi
#ifndef UNLINK_WITH_CHILDREN
			fi
#endif
		fi
	od
}

inline unlink1(n) {
	v1 = word[n];
	if
	:: !(v1 & UNLINKED) && COMPLETE(v1) -> lock(mu[0]); removeIdle(n, v1); unlock(mu[0])
	:: else
	fi
}

inline unlink2(n) {
	v2 = word[n];
	if
	:: !(v2 & UNLINKED) && COMPLETE(v2) -> lock(mu[1]); removeIdle(n, v2); unlock(mu[1])
	:: else
	fi
}

/* The sweep of push, which the model does at any time instead of when the list has doubled. */
inline sweep0() { lock(mu[0]); removeIdle(1, v1); unlock(mu[0]) }
inline sweep1() { lock(mu[1]); removeIdle(2, v2); removeIdle(3, v2); unlock(mu[1]) }
