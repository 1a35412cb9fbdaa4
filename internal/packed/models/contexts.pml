/* The contexts of scopes, ctxshutdown/lazycontext.go: the first Done against a stop, a child that shares the context of
 * its parent, and the functions that watch a context for a Completion.
 *
 * Scope 0 is the root, which has context 1 from the start. Scopes 1 and 2 are its child and its grandchild. They get a
 * context when one is needed: std[n] is 0, or the number of the context of scope n. Package context is modelled as it
 * works: a context is registered with its parent under the mutex of the parent, and a cancellation sets the error of a
 * context and then cancels the contexts below it, while it holds the mutex.
 *
 * STOP0, STOP1 and STOP2 stop a scope. DEADLINE cancels the context of the root without any code of this module. ASK
 * processes call Done of scope ASKED. READ reads Err and Cause of scope 2 at any time. WATCH processes ask for a
 * Completion of the child. docs/internals/counting.md#signalled-and-sealed
 */
#ifndef ASKED
#define ASKED 2
#endif
#ifndef ASK
#define ASK 0
#endif
#ifndef WATCH
#define WATCH 0
#endif

#define ROOT  1 /* the context of the root */
#define FIRST 2 /* contexts 2 to 5 are made for the child, 6 to 9 for the grandchild */
#define EACH  4
#define STOPPED 10 /* context 10 + x is cancelled from the start, with cause x */
#define CONTEXTS 14

byte std[3];
bit ended[CONTEXTS];
byte cause[CONTEXTS];
byte above[CONTEXTS];    /* the parent of a context */
bit registered[CONTEXTS]; /* with its parent */
bit mu[CONTEXTS];
byte made[3];
bit sealed[3];

/* Functions that package context calls when a context ends; all of them stop the node of the child. */
byte functions[CONTEXTS];
bit stored;   /* one of them is stored in stopAfterFunc of the child */
byte started; /* goroutines that package context has started for them, and that have not begun */
bit watched;

#define VARS byte c0, c1, c2, c, r, i; bit e, ok
#define SCOPE(x) ((x) < FIRST + EACH -> 1 : 2)
#define HAS_CANCEL(x) ((x) < STOPPED)

inline lock(m)   { d_step { m == 0 -> m = 1 } }
inline unlock(m) { m = 0 }

inline finish(x, y) { d_step { ended[x] = 1; cause[x] = y; started = started + functions[x]; functions[x] = 0 } }

/* Cancels a context of the grandchild, which has none below it. */
inline cancelLast(x, y) {
	d_step {
		mu[x] == 0 ->
		if
		:: ended[x]
		:: else -> ended[x] = 1; cause[x] = y
		fi;
		registered[x] = 0
	}
}

/* Cancels context x with cause y, then the contexts registered with it: below the child's those of the grandchild. */
inline cancelChild(x, y) {
	lock(mu[x]);
	if
	:: ended[x]
	:: else ->
		finish(x, y);
		i = FIRST + EACH;
		do
		:: i == STOPPED -> break
		:: else ->
			if
			:: registered[i] && above[i] == x -> cancelLast(i, y)
			:: else
			fi;
			i++
		od;
		i = 0
	fi;
	unlock(mu[x])
}

inline cancelRoot(y) {
	lock(mu[ROOT]);
	if
	:: ended[ROOT]
	:: else ->
		finish(ROOT, y);
		r = FIRST;
		do
		:: r == FIRST + EACH -> break
		:: else ->
			if
			:: registered[r] -> cancelChild(r, y); registered[r] = 0
			:: else
			fi;
			r++
		od;
		/* contexts of the grandchild whose parent is the context that the child shares with the root */
		r = FIRST + EACH;
		do
		:: r == STOPPED -> break
		:: else ->
			if
			:: registered[r] && above[r] == ROOT -> cancelLast(r, y)
			:: else
			fi;
			r++
		od;
		r = 0
	fi;
	unlock(mu[ROOT])
}

inline cancel(x, y) {
	if
	:: x == ROOT -> cancelRoot(y)
	:: x > ROOT && x < FIRST + EACH -> cancelChild(x, y)
	:: else -> cancelLast(x, y)
	fi;
	if
	:: x == ROOT
	:: else -> d_step { mu[above[x]] == 0 -> registered[x] = 0 }
	fi
}

/* WithCancelCause(parent), where x is the context of the parent. */
inline newContext(n, x, c) {
	d_step {
		c = FIRST + (n - 1) * EACH + made[n];
		assert(made[n] < EACH);
		made[n]++;
		above[c] = x
	}
	d_step {
		mu[x] == 0 ->
		if
		:: ended[x] -> ended[c] = 1; cause[c] = cause[x]
		:: else -> registered[c] = 1
		fi
	}
}

#ifdef KEEP_LOSER
inline drop(c) { skip }
#else
inline drop(c) { cancel(c, 0) }
#endif

inline keep(n, c) {
	d_step {
		ok = !std[n];
		if
		:: ok -> std[n] = c
		:: else
		fi
	}
	if
	:: ok -> ok = 0
	:: else -> drop(c); c = std[n]
	fi
}

inline derive1(c) {
	c = std[1];
	if
	:: c
	:: else -> newContext(1, ROOT, c); keep(1, c)
	fi
}

inline derive2(c) {
	c = std[2];
	if
	:: c
	:: else -> derive1(c1); newContext(2, c1, c); keep(2, c)
	fi
}

inline derive(n, c) {
	if
	:: n == 0 -> c = ROOT
	:: n == 1 -> derive1(c)
	:: n == 2 -> derive2(c)
	fi
}

/* Shares the context of the parent, which has ended. */
inline share(n) { d_step { if :: !std[n] && std[n - 1] -> std[n] = std[n - 1] :: else fi } }

inline Err1() {
#ifdef SHARE_RUNNING
	share(1);
#endif
	if
	:: std[1] -> e = ended[std[1]]
	:: else ->
		e = ended[ROOT];
		if
		:: e -> share(1); derive1(c); e = ended[c]
		:: else
		fi
	fi
}

inline Err2() {
	if
	:: std[2] -> e = ended[std[2]]
	:: else ->
		Err1();
		if
		:: e -> share(2); derive2(c); e = ended[c]
		:: else
		fi
	fi
}

/* context.Cause. Package context asks the scope for the context that stores the cause. */
inline Cause2(x) {
	c = std[2];
	if
	:: c
	:: else ->
#ifdef CAUSE_OF_PARENT
		derive1(c)
#else
		derive2(c)
#endif
	fi;
	d_step { mu[c] == 0 -> x = cause[c] }
}

/* When a scope is stopped in the tree, no context below it is still running. */
inline seal(n) {
	d_step {
		assert(!std[1] || ended[std[1]] || n > 1);
		assert(!std[2] || ended[std[2]]);
		sealed[n] = 1
	}
}

inline cancelOwn(n, y) {
	if
	:: HAS_CANCEL(c0) ->
		assert(n == 0 || c0 >= FIRST && SCOPE(c0) == n || ended[c0]); /* never the running context of a parent */
		cancel(c0, y)
	:: else
	fi
}

inline stop(n, y) {
	if
	:: n == 1 && stored -> d_step { stored = 0; c = std[1]; if :: c && functions[c] -> functions[c]-- :: else fi }
	:: else
	fi;
	c0 = std[n];
	if
	:: n == 0 || c0 -> e = 1
	:: n == 1 && !c0 -> e = ended[ROOT]
	:: n == 2 && !c0 -> Err1()
	fi;
	ok = 0;
	if
	:: !e -> d_step { ok = !std[n]; if :: ok -> std[n] = STOPPED + y :: else fi }
	:: else
	fi;
#ifdef LOSE_STOP
	if
	:: !e -> ok = 1 /* as if no Done could have come between the two looks */
	:: else
	fi;
#endif
	e = 0;
	if
	:: ok -> ok = 0
	:: else -> derive(n, c0); cancelOwn(n, y)
	fi;
	seal(n)
}

inline syncTree1() {
	if
	:: sealed[1]
	:: else ->
		derive1(c0);
#ifndef SYNC_AT_ONCE
		cancelOwn(1, 0);
#endif
		seal(1)
	fi
}

proctype stop0() { VARS; stop(0, 1) }
proctype stop1() { VARS; stop(1, 2) }
proctype stop2() { VARS; stop(2, 3) }
proctype deadline() { VARS; cancelRoot(3) }

/* All calls of Done return the same channel. */
byte answer;
proctype ask() {
	VARS;
	derive(ASKED, c2);
	d_step { assert(!answer || answer == c2); answer = c2 }
}

/* Once the error is set, so is the cause, and it stays as it is. */
proctype read() {
	VARS;
	byte first, second;
	bit err;
	Err2();
	err = e;
	Cause2(first);
	Cause2(second);
	assert(!err || first);
	assert(!first || first == second)
}

/* watchContext */
proctype watch() {
	VARS;
	Err1();
	if
	:: e -> syncTree1()
	:: else ->
		if
		:: stored
		:: else ->
			derive1(c2);
			d_step { mu[c2] == 0 -> if :: ended[c2] -> started++ :: else -> functions[c2]++ fi }
			d_step { ok = !stored; stored = 1 }
			if
			:: ok -> ok = 0
			:: else ->
#ifndef KEEP_FUNCTION
				d_step { if :: functions[c2] -> functions[c2]-- :: else fi }
#else
				skip
#endif
			fi
		fi
	fi;
	watched = 1
}

/* The goroutines that package context starts. */
active proctype sync() {
	VARS;
end:
	do
	:: started -> started--; syncTree1()
	od
}

byte k;
init {
	atomic {
		std[0] = ROOT;
		ended[STOPPED + 1] = 1; cause[STOPPED + 1] = 1;
		ended[STOPPED + 2] = 1; cause[STOPPED + 2] = 2;
		ended[STOPPED + 3] = 1; cause[STOPPED + 3] = 3;
#ifdef STOP0
		run stop0();
#endif
#ifdef STOP1
		run stop1();
#endif
#ifdef STOP2
		run stop2();
#endif
#ifdef DEADLINE
		run deadline();
#endif
#ifdef READ
		run read();
#endif
		do
		:: k < ASK -> run ask(); k++
		:: else -> break
		od;
		k = 0;
		do
		:: k < WATCH -> run watch(); k++
		:: else -> break
		od
	}
	_nr_pr == 2 && !started && sync@end;
	d_step {
		/* Only the context that a scope uses is registered with its parent. */
		k = FIRST;
		do
		:: k == STOPPED -> break
		:: else -> assert(!registered[k] || std[SCOPE(k)] == k); k++
		od;
		/* A watched scope that has ended is stopped in the tree; one that runs has one function. */
		if
		:: watched && std[1] && ended[std[1]] -> assert(sealed[1])
		:: watched && std[1] && !ended[std[1]] -> assert(functions[std[1]] == 1)
		:: else
		fi;
#ifdef STOP0
		assert(ended[ROOT] && (!std[1] || ended[std[1]]) && (!std[2] || ended[std[2]]))
#endif
	}
}
