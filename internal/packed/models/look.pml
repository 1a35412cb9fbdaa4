/* Looks, ../../../ctxshutdown/look.go. Somebody asks very often whether the leaf of a root, a middle and a leaf has been ended. He
 * puts its flag where each stop that ends it raises flags, unless it is too late, and from then on goes by the flag. Each of the
 * three is stopped, or (AGAIN) the root by two and the middle. Who stops raises what flags he finds, or leaves a mark where
 * nobody has looked yet, and then signals.
 *
 * As long as the flag is down, the leaf's signal has not been given. Nothing is needed of the tree of counts: the scopes may be
 * loose.
 */
bit given[3];
bit made[3];   /* there is a place for flags, or a mark that it is too late for one */
bit over[3];   /* its own flag is up */
bit listed[3]; /* the leaf's flag is in it */
bit mu[3];
bit known;     /* the leaf's flag is where it belongs */
#define flag over[2]

inline lock(n) { d_step { mu[n] == 0 -> mu[n] = 1 } }

inline add(n) {
	made[n] = 1;
#ifdef CHECK_OUTSIDE
	ok = !over[n];
	if
	:: !ok
	:: else -> lock(n); listed[n] = 1; mu[n] = 0
	fi
#else
	lock(n);
	ok = !over[n];
	if
	:: ok -> listed[n] = 1
	:: else
	fi;
	mu[n] = 0
#endif
}

proctype looker() {
	bit ok;
	made[2] = 1;
	if
	:: known
	:: else ->
#ifdef KNOWN_FIRST
		known = 1;
#endif
		add(1);
#ifndef PARENT_ONLY
		if
		:: ok -> add(0)
		:: else
		fi;
#endif
		if
		:: !ok -> flag = 1
		:: else
		fi;
		known = 1
	fi;
	assert(flag || !given[2])
}

inline raise(n) {
	over[n] = 1;
	lock(n);
#ifdef EMPTY_IS_RAISED
	/* Taken out under the mutex, and raised outside of it: a second stopper finds nothing. */
	mine = listed[n];
	listed[n] = 0;
	mu[n] = 0;
	if
	:: mine -> flag = 1
	:: else
	fi
#else
	if
	:: listed[n] -> flag = 1
	:: else
	fi;
	listed[n] = 0;
	mu[n] = 0
#endif
}

inline warn(n) {
	d_step {
		mine = made[n];
#ifndef NO_MARK
		if
		:: !mine -> made[n] = 1; over[n] = 1
		:: else
		fi
#endif
	}
	if
	:: mine -> mine = 0; raise(n)
	:: else
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
#ifdef RAISE_LATE
	signal(n);
	warn(n)
#else
	warn(n);
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
