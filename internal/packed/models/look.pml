/* Looks, ../../../ctxshutdown/look.go. Somebody asks very often whether the leaf of a root, a middle and a leaf has been ended. He
 * puts its flag where each stop that ends it raises it, asks for warnings after that, and from then on goes by the flag. Each
 * of the three is stopped, or (AGAIN) the root by two and the middle. Who stops warns, raises what flags he finds, and then
 * signals.
 *
 * As long as the flag is down, the leaf's signal has not been given. A warning of those below, and a list of children, is not
 * needed for that: the scopes may be loose.
 */
bit warned[3];
bit given[3];
bit made[3];   /* somebody looks at the scope, or below: there is a place for flags */
bit listed[3]; /* the leaf's flag is in it */
bit mu[3];
bit flag;
bit known;     /* the flag is where it belongs */

inline lock(n) { d_step { mu[n] == 0 -> mu[n] = 1 } }

inline add(n) {
	made[n] = 1;
	lock(n);
	listed[n] = 1;
	mu[n] = 0
}

inline askWords() {
	ok = !warned[2];
	ok = ok && !warned[1];
	ok = ok && !warned[0]
}

proctype looker() {
	bit ok, sure;
	if
	:: known -> sure = 1
	:: else ->
		askWords();
		if
		:: !ok
		:: else ->
			made[2] = 1;
#ifdef KNOWN_FIRST
			known = 1;
#endif
#ifdef ASK_FIRST
			askWords();
#endif
			add(1);
#ifndef PARENT_ONLY
			add(0);
#endif
#ifndef ASK_FIRST
			askWords();
#endif
			if
			:: !ok -> flag = 1
			:: else
			fi;
			known = 1;
			sure = 1
		fi
	fi;
	assert(!sure || flag || !given[2])
}

inline raise(n) {
	if
	:: !made[n]
	:: else ->
		if
		:: n == 2 -> flag = 1
		:: else
		fi;
#ifdef EMPTY_IS_RAISED
		/* Taken out under the mutex, and raised outside of it: a second stopper finds nothing. */
		lock(n);
		mine = listed[n];
		listed[n] = 0;
		mu[n] = 0;
		if
		:: mine -> flag = 1
		:: else
		fi
#else
		lock(n);
		if
		:: listed[n] -> flag = 1
		:: else
		fi;
		listed[n] = 0;
		mu[n] = 0
#endif
	fi
}

inline signal(n) {
	given[n] = 1;
	if
	:: n == 0 -> given[1] = 1
	:: else
	fi;
	given[2] = 1
}

proctype stopper(byte n) {
	bit mine;
#ifdef RAISE_FIRST
	raise(n);
	warned[n] = 1;
	signal(n)
#elif defined(RAISE_LATE)
	warned[n] = 1;
	signal(n);
	raise(n)
#else
	warned[n] = 1;
	raise(n);
	signal(n)
#endif
}

#ifdef SWEEP_DOWN
/* A sweep takes out those that are up. This one does so with those that are down. */
proctype sweeper() {
	lock(1);
	if
	:: !flag -> listed[1] = 0
	:: else
	fi;
	mu[1] = 0
}
#endif

init {
	atomic {
		run looker();
		run looker();
#ifdef SWEEP_DOWN
		run sweeper();
#endif
		run stopper(0);
		run stopper(1);
#ifdef AGAIN
		run stopper(0)
#else
		run stopper(2)
#endif
	}
	_nr_pr == 1 -> assert(!known || flag)
}
