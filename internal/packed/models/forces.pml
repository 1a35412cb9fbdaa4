/* Two calls of Force at once, ctxshutdown/work.go: one on the root with cause 1, one on its child with cause 2. The
 * grandchild has a Work that starts at any time; WORK1 gives the child one, too. The scopes hold no guards and complete
 * as soon as a Force has stopped them, or with HELD never complete. READ asks a scope twice for the cause of its Force.
 *
 * The answer of forceCause does not change. When both calls and the start of a Work have returned, the Work has ended,
 * with the cause of its scope. If the Force of the root had returned before, that of the child changes nothing.
 * docs/internals/core.md#semantic-5
 */
#define SHUTDOWN 3

byte forced[3];
bit published[3]; /* the Work of a scope is stored in it */
byte ended[3];    /* the cause with which the Work of a scope has ended */
bit complete[3];
bit rootReturned, rootFirst;

#define VARS byte r0, r1, r2

/* Within a d_step. */
inline swap(n, x) { if :: !forced[n] -> forced[n] = x :: else fi }

/* findForce: the cause of the first Force found from a scope upwards, which is stored in the scope. */
inline find0() { r0 = forced[0] }

#ifdef NO_STORE
inline store(n, x, r) { r = x }
#else
inline store(n, x, r) { d_step { swap(n, x) }; r = forced[n] }
#endif

inline find1() {
	r1 = forced[1];
	if
	:: r1
	:: else ->
		find0();
		if
		:: r0 -> store(1, r0, r1); r0 = 0
		:: else -> r1 = forced[1]
		fi
	fi
}

inline find2() {
	r2 = forced[2];
	if
	:: r2
	:: else ->
		find1();
		if
		:: r1 -> store(2, r1, r2); r1 = 0
		:: else -> r2 = forced[2]
		fi
	fi
}

/* Within a d_step. */
inline finish(n, x) { if :: !ended[n] -> ended[n] = x :: else fi }

/* A Work that a completed scope ends has the cause of Force, if there was one. */
inline cancelWork1() {
	if
	:: published[1] ->
		find1();
		if
		:: r1 -> d_step { finish(1, r1); r1 = 0 }
		:: else -> d_step { finish(1, SHUTDOWN) }
		fi
	:: else
	fi
}

inline cancelWork2() {
	if
	:: published[2] ->
		find2();
		if
		:: r2 -> d_step { finish(2, r2); r2 = 0 }
		:: else -> d_step { finish(2, SHUTDOWN) }
		fi
	:: else
	fi
}

#ifdef HELD
inline stop1() { skip }
#else
inline stop1() { complete[2] = 1; cancelWork2(); complete[1] = 1; cancelWork1() }
#endif

#ifdef OWN_CAUSE
#define CAUSE(r, x) x
#else
#define CAUSE(r, x) r
#endif

/* The walk over the scopes below ends their Works. */
inline walk(x) {
	if
	:: published[1] -> find1(); d_step { finish(1, CAUSE(r1, x)); r1 = 0 }
	:: else
	fi;
	if
	:: published[2] -> find2(); d_step { finish(2, CAUSE(r2, x)); r2 = 0 }
	:: else
	fi
}

proctype forceRoot() {
	VARS;
#ifdef STORE_LATE
	stop1();
#endif
	find0();
	d_step { swap(0, 1); r0 = 0 };
#ifndef STORE_LATE
	stop1();
#endif
	walk(1);
	rootReturned = 1
}

proctype forceChild() {
	VARS;
	rootFirst = rootReturned;
#ifndef NO_LOOK
	find1();
#endif
	d_step { swap(1, 2); r1 = 0 };
	stop1();
	walk(2)
}

proctype work2() {
	VARS;
	published[2] = 1;
	find2();
	if
	:: r2 -> d_step { finish(2, r2); r2 = 0 }
	:: else
	fi;
	if
	:: complete[2] -> cancelWork2()
	:: else
	fi
}

#ifdef WORK1
proctype work1() {
	VARS;
	published[1] = 1;
	find1();
	if
	:: r1 -> d_step { finish(1, r1); r1 = 0 }
	:: else
	fi;
	if
	:: complete[1] -> cancelWork1()
	:: else
	fi
}
#endif

#ifdef READ
proctype read() {
	VARS;
	byte first;
	if
	:: find1(); first = r1; find1(); assert(!first || first == r1)
	:: find2(); first = r2; find2(); assert(!first || first == r2)
	fi
}
#endif

init {
	VARS;
	atomic {
		run forceRoot();
		run forceChild();
		run work2();
#ifdef WORK1
		run work1();
#endif
#ifdef READ
		run read();
#endif
	}
	_nr_pr == 1;
	find2();
	assert(ended[2] && ended[2] == r2);
	find1();
	assert(r1 == r2 || ended[2] == 1 && r1 == 2 || ended[2] == 2 && r1 == 1);
#ifdef WORK1
	assert(ended[1] && ended[1] == r1);
#endif
	assert(!rootFirst || forced[1] == 1)
}
