/* The inbox: state, queue, debts and sleep; and what a stop tells, with the completion that comes after it. See ../inbox.go
   and ../loop.go, whose names are used, and README.md. */

#define IDLE 0
#define STARTING 1
#define RUNNING 2
#define STOPPING 3
#define STOPPED 4

#ifndef STOPPERS
#define STOPPERS 1
#endif
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#define MAX 6 /* callbacks */
#define COMPLETION 5 /* the callback that pays the debt */

byte state = IDLE;
bit mu;

#ifdef NO_DEBT
#define PAID true
#else
#define PAID (owed == 0)
#endif

chan queue = [MAX] of { byte };
byte owed;
bit asleep, kicked, signal; /* signal: a Signal for a loop that waits */
bit waiting;                /* the loop waits on the condition */

byte ran[MAX];
bit accepted[MAX], refused[MAX];
bit stopReturned;
bit settled;
byte underWay; /* the tally of offloads */
bit admitted;  /* the pool has taken it on */
bit busy;      /* a callback is running */
byte pushed, executed;

bit pending = 1, cancelled; /* a timer, and the counter */
bit raised;                 /* the ShutdownHandle */
bit scope;                  /* has been told to stop */
bit guard = 1;              /* with scope: the completion resolves when it is released */

inline lock() { atomic { mu == 0 -> mu = 1 } }
inline unlock() { mu = 0 }

/* Signal wakes a waiter, and is lost where there is none. */
inline wake() { atomic { if :: waiting -> waiting = 0; signal = 1 :: else fi } }

inline push(id, w) {
#ifndef WAKE_IF_EMPTY_LATE
	w = asleep;
#endif
	asleep = 0;
	pushed++;
	queue!id
}

inline kick() {
	lock();
	d_step { kicked = 1; asleep = 0 };
	unlock();
	wake()
}

/* The timers have a mutex of their own, and the handle a Once. Nobody here looks in between: one step. */
inline tell(n) {
#ifdef COUNT_OUTSIDE
	d_step { n = pending; pending = 0; raised = 1 };
	cancelled = cancelled + n
#else
	d_step { cancelled = cancelled + pending; pending = 0; raised = 1 }
#endif
}

inline halt(s, n, flipped) {
	flipped = 0;
	do
	:: s = state;
		if
		:: s == IDLE -> atomic { if :: state == s -> state = STOPPED; flipped = 1 :: else fi }
		:: s == STARTING || s == RUNNING -> atomic { if :: state == s -> state = STOPPING; flipped = 1 :: else fi }
		:: else -> break
		fi;
		if :: flipped -> break :: else fi
	od;
#ifdef FIRST_TELLS
	if :: flipped -> tell(n) :: else fi;
#else
	tell(n);
#endif
#ifndef NO_KICK
	if :: flipped -> kick() :: else fi;
#endif
	if :: flipped && s == IDLE -> guard = 0 :: else fi
}

/* Whoever waits for the completion. */
proctype waiter() {
	atomic {
		scope && guard == 0;
		assert(state == STOPPED && raised && cancelled && !pending)
	}
}

proctype producer(byte id) {
	bit w;
	bit late;
	late = stopReturned;
#ifdef WAKE_IF_EMPTY_LATE
	w = asleep;
#endif
#ifdef CHECK_OUTSIDE
	if
	:: state != RUNNING -> goto refuse
	:: else
	fi;
	lock();
#else
	lock();
	if
	:: state != RUNNING -> unlock(); goto refuse
	:: else
	fi;
#endif
	d_step { push(id, w); accepted[id] = 1 };
	assert(!late);
	unlock();
	if
	:: w -> wake()
	:: else
	fi;
	goto done;
refuse:
	refused[id] = 1;
done:
	skip
}

inline pay(over, w) {
	lock();
	d_step {
		assert(owed > 0);
		owed--;
		push(COMPLETION, w);
		if :: over -> underWay-- :: else fi
	};
	unlock();
	if :: w -> wake() :: else fi
}

/* The offload and whoever runs its work; the time-out is another. */
proctype timeout_() {
	bit w;
	bit won;
#ifdef PAY_TWICE
	won = !settled; settled = 1;
#else
	d_step { won = !settled; settled = 1 };
#endif
	if
	:: won -> pay(0, w)
	:: else
	fi
}

proctype offload() {
	bit w, won;
	lock();
	if
	:: state != RUNNING -> unlock(); goto done
	:: else
	fi;
	d_step { owed++; underWay++ };
	unlock();
	if
	:: true -> /* the pool refuses */
		lock();
#ifdef FORGIVE_EARLY
		owed--;
#else
		d_step { owed--; underWay-- };
#endif
		unlock();
#ifndef NO_FORGIVE_KICK
		kick();
#endif
#ifdef FORGIVE_EARLY
		underWay--;
#endif
		goto done
	:: true -> admitted = 1
	fi;
	accepted[COMPLETION] = 1;
	if
	:: run timeout_()
	:: true
	fi;
#ifdef PAY_TWICE
	won = !settled; settled = 1;
#else
	d_step { won = !settled; settled = 1 };
#endif
	if
	:: won -> pay(1, w)
	:: else -> underWay--
	fi;
done:
	skip
}

proctype stopper() {
	byte s;
	bit n, flipped;
#ifdef LATE_FLIP
	stopReturned = 1;
#endif
#ifdef PATIENT
	ran[0] || refused[0]; /* it may not be the stop that wakes the loop */
#endif
#ifdef ABOVE
	scope = 1; /* and halt is called after that */
#endif
	halt(s, n, flipped);
	assert(raised && !pending);
	d_step { scope = 1; stopReturned = 1; s = 0; flipped = 0 }
}

/* Quiesce: one question, answered at once or by the loop. Whose time is up looks for himself. */
bit asking, answered;

#ifdef QUIET_WHILE_BUSY
#define EXECUTED (len(queue) == 0)
#else
#define EXECUTED (pushed == executed)
#endif

#ifdef OVERLOOK_DEBT
#define NO_OFFLOAD (underWay == 0)
#else
#define NO_OFFLOAD (underWay == 0 && owed == 0)
#endif

/* counts, and what is so if it says that all is quiet */
inline look() {
	if
	:: NO_OFFLOAD && EXECUTED -> assert(!busy && owed == 0 && len(queue) == 0)
	:: else
	fi
}

inline answer() {
	d_step {
		if
		:: asking ->
			asking = 0;
			answered = 1;
			look()
		:: else
		fi
	}
}

proctype quiesce() {
	lock();
	asking = 1;
	if
	:: asleep || state == IDLE || state == STOPPED -> answer()
	:: else
	fi;
	unlock();
	if
	:: answered == 1
	:: true -> /* the time is up */
		lock();
		d_step { asking = 0; look() };
		unlock()
	fi
}

proctype loop() {
	byte f, n, s;
	bit m, flipped;
	/* begin and open */
	atomic { if :: state == IDLE -> state = STARTING :: else -> goto out fi };
#ifdef IDLE_WITHOUT_GUARD
	guard = 1;
#endif
	if
	:: scope -> halt(s, m, flipped); goto finish
	:: else
	fi;
	atomic { if :: state == STARTING -> state = RUNNING :: else fi };
take:
	lock();
next:
	if
	:: len(queue) > 0 ->
		n = len(queue);
		unlock();
		/* the chunk is ours; the queue stands for what is behind it as well, in the same order */
		do
		:: n > 0 ->
			d_step { queue?f; busy = 1; ran[f]++; assert(ran[f] == 1); assert(accepted[f] || f == COMPLETION); n-- };
			d_step { busy = 0; executed++ }
		:: else -> break
		od;
		goto take
	:: else
	fi;
#ifdef EXIT_OUTSIDE
	unlock();
	if
	:: state == STOPPING && PAID -> goto over
	:: else
	fi;
	lock();
	if :: len(queue) > 0 -> goto next :: else fi;
#else
	if
	:: state == STOPPING && PAID -> unlock(); goto over
	:: else
	fi;
#endif
	if
	:: kicked -> kicked = 0; unlock(); goto take
	:: else
	fi;
	answer();
	asleep = 1;
	d_step { waiting = 1; mu = 0 };
	atomic { signal == 1 -> signal = 0 };
	lock();
	goto next;
over:
	assert(underWay == 0 || admitted); /* what the counters say of the end */
finish:
#ifndef LOOP_TELLS_NOT
	tell(m);
#endif
	lock();
	atomic { assert(state == STOPPING); state = STOPPED };
	answer();
	unlock();
	assert(len(queue) == 0);
	guard = 0;
out:
	skip
}

init {
	byte i;
	atomic {
#ifdef IDLE_WITHOUT_GUARD
		guard = 0;
#endif
		run loop();
		run waiter();
		i = 0;
		do
		:: i < PRODUCERS -> run producer(i); i++
		:: else -> break
		od;
#ifdef OFFLOAD
		run offload();
#endif
#ifdef ASK
		run quiesce();
#endif
		i = 0;
		do
		:: i < STOPPERS -> run stopper(); i++
		:: else -> break
		od
	};
	_nr_pr == 1;
	assert(state == STOPPED);
	assert(owed == 0 && underWay == 0);
	i = 0;
	do
	:: i < MAX ->
		assert(ran[i] == accepted[i]);
		assert(!(accepted[i] && refused[i]));
		i++
	:: else -> break
	od
}
