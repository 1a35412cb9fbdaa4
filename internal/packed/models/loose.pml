/* The registry, loose.go: a scope joins its parent's list at its first guard and drops out when nothing matters. */

#ifdef JOIN_UNSEALED
#define BIRTH(p, v) LOOSE
#else
#define BIRTH(p, v) ((closing[p] || !((v) & LIVE)) -> (LOOSE | LIVE) : LOOSE)
#endif

#if defined(WARN) && !defined(JOIN_UNWARNED)
inline push(n, p, v) {
	if
	:: v & WARNED -> word[n] = word[n] | WARNED
	:: else
	fi;
	d_step { listed[n] = 1; word[n] = word[n] & ~(BIRTH(p, v)) }
}
#else
inline push(n, p, v) { d_step { listed[n] = 1; word[n] = word[n] & ~(BIRTH(p, v)) } }
#endif

inline join1(n) {
	lock(mu[0]);
	if
	:: !(word[n] & LOOSE)
	:: else ->
		word[0] = word[0] | KIN;
		v0 = word[0];
		push(n, 0, v0)
	fi;
	unlock(mu[0])
}

inline join2(n) {
	do
	:: lock(mu[1]);
		if
		:: !(word[n] & LOOSE) -> unlock(mu[1]); break
		:: else ->
#ifdef JOIN_NO_KIN
			v1 = word[1];
#else
			or(1, KIN, v1);
#endif
			if
#ifndef JOIN_ALONE
			:: v1 & LOOSE -> unlock(mu[1]); join1(1)
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
/* The children of n go first, under its mu. They have none themselves. */
inline dropKid(k) {
	if
	:: listed[k] ->
		do
		:: v2 = word[k];
			if
			:: (v2 & (LOOSE | ANN | PIN)) || !EMPTY(v2) -> break
			:: else ->
				d_step {
					ok = (word[k] == v2);
					if
					:: ok -> word[k] = v2 | LOOSE; listed[k] = 0
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
inline dropKids(n) {
	if
	:: n == 1 -> dropKid(2); dropKid(3)
	:: else
	fi
}
#else
inline dropKids(n) { skip }
#endif

/* Called with the parent's mu held. */
inline drop(n, v) {
#ifdef STRIPES
	gather(n);
#endif
	do
	:: v = word[n];
		if
#ifdef DROP_PINNED
		:: (v & (LOOSE | ANN)) || !EMPTY(v) -> break
#elif defined(DROP_BUSY)
		:: (v & (LOOSE | ANN | PIN)) -> break
#else
		:: (v & (LOOSE | ANN | PIN)) || !EMPTY(v) -> break
#endif
		:: else ->
#ifndef DROP_KIN
			if
			:: v & KIN ->
				lock(mu[n]);
				dropKids(n);
				if
				:: CHILDLESS(n) -> word[n] = word[n] & ~KIN; unlock(mu[n])
				:: else -> unlock(mu[n]); break
				fi
			:: else ->
#endif
				d_step {
					ok = (word[n] == v);
					if
					:: ok -> word[n] = v | LOOSE; listed[n] = 0
					:: else
					fi
				}
				if
				:: ok -> ok = 0; break
				:: else
				fi
#ifndef DROP_KIN
			fi
#endif
		fi
	od
}

inline leave1(n) {
	v1 = word[n];
	if
	:: !(v1 & LOOSE) && COMPLETE(v1) -> lock(mu[0]); drop(n, v1); unlock(mu[0])
	:: else
	fi
}

inline leave2(n) {
	v2 = word[n];
	if
	:: !(v2 & LOOSE) && COMPLETE(v2) -> lock(mu[1]); drop(n, v2); unlock(mu[1])
	:: else
	fi
}

/* What push does to the other children when the list has doubled; here it may happen at any time. */
inline sweep0() { lock(mu[0]); drop(1, v1); unlock(mu[0]) }
inline sweep1() { lock(mu[1]); drop(2, v2); drop(3, v2); unlock(mu[1]) }
