/* The inbox of an event loop: its state, queue, promised completions and sleep; what a stop notifies,
   and the completion that follows. The names are those of ../inbox.go and ../loop.go; see README.md. */

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
#define COMPLETION 5 /* the callback that is the completion */

byte state = IDLE;
bit mu;

#ifdef NO_PROMISE
#define DELIVERED true
#else
#define DELIVERED (promised == 0)
#endif

chan queue = [MAX] of { byte };
byte promised;
bit sleeping, wakeRequested, signal; /* signal: a Signal for a waiting loop */
bit waiting;                /* the loop waits on the condition */

byte ran[MAX];
bit accepted[MAX], refused[MAX];
bit stopReturned;
bit settled;
byte offloads; /* the number of offloads */
bit poolAccepted;  /* the pool has accepted the job */
bit busy;      /* a callback is running */
byte pushed, executed;

bit pending = 1, cancelled; /* a timer, and the counter of cancelled timers */
bit raised;                 /* the ShutdownHandle */
bit scope;                  /* the scope has been stopped */
bit guard = 1;              /* with scope: the completion resolves when it is released */

inline lock() { atomic { mu == 0 -> mu = 1 } }
inline unlock() { mu = 0 }

/* sync.Cond.Signal: wakes a waiting goroutine, and is lost if there is none. */
inline signalWaiter() { atomic { if :: waiting -> waiting = 0; signal = 1 :: else fi } }

inline push(id, w) {
#ifndef WAKE_IF_EMPTY_LATE
	w = sleeping;
#endif
	sleeping = 0;
	pushed++;
	queue!id
}

inline wake() {
	lock();
	d_step { wakeRequested = 1; sleeping = 0 };
	unlock();
	signalWaiter()
}

/* The timers have a mutex of their own, and the handle a sync.Once. No process observes the time in
   between, so both are one step. */
inline notifyStopped(n) {
#ifdef COUNT_OUTSIDE
	d_step { n = pending; pending = 0; raised = 1 };
	cancelled = cancelled + n
#else
	d_step { cancelled = cancelled + pending; pending = 0; raised = 1 }
#endif
}

inline beginStop(s, n, changed) {
	changed = 0;
	do
	:: s = state;
		if
		:: s == IDLE -> atomic { if :: state == s -> state = STOPPED; changed = 1 :: else fi }
		:: s == STARTING || s == RUNNING -> atomic { if :: state == s -> state = STOPPING; changed = 1 :: else fi }
		:: else -> break
		fi;
		if :: changed -> break :: else fi
	od;
#ifdef FIRST_NOTIFIES
	if :: changed -> notifyStopped(n) :: else fi;
#else
	notifyStopped(n);
#endif
#ifndef NO_WAKE
	if :: changed -> wake() :: else fi;
#endif
	if :: changed && s == IDLE -> guard = 0 :: else fi
}

/* A goroutine that waits for the completion. */
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
	w = sleeping;
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
	:: w -> signalWaiter()
	:: else
	fi;
	goto done;
refuse:
	refused[id] = 1;
done:
	skip
}

inline deliver(over, w) {
	lock();
	d_step {
		assert(promised > 0);
		promised--;
		push(COMPLETION, w);
		if :: over -> offloads-- :: else fi
	};
	unlock();
	if :: w -> signalWaiter() :: else fi
}

/* offload starts an offload and runs its work; timeout_ is its time-out. */
proctype timeout_() {
	bit w;
	bit won;
#ifdef DELIVER_TWICE
	won = !settled; settled = 1;
#else
	d_step { won = !settled; settled = 1 };
#endif
	if
	:: won -> deliver(0, w)
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
	d_step { promised++; offloads++ };
	unlock();
	if
	:: true -> /* the pool refuses the job */
		lock();
#ifdef CANCEL_EARLY
		promised--;
#else
		d_step { promised--; offloads-- };
#endif
		unlock();
#ifndef CANCEL_WITHOUT_WAKE
		wake();
#endif
#ifdef CANCEL_EARLY
		offloads--;
#endif
		goto done
	:: true -> poolAccepted = 1
	fi;
	accepted[COMPLETION] = 1;
	if
	:: run timeout_()
	:: true
	fi;
#ifdef DELIVER_TWICE
	won = !settled; settled = 1;
#else
	d_step { won = !settled; settled = 1 };
#endif
	if
	:: won -> deliver(1, w)
	:: else -> offloads--
	fi;
done:
	skip
}

proctype stopper() {
	byte s;
	bit n, changed;
#ifdef LATE_STATE_CHANGE
	stopReturned = 1;
#endif
#ifdef STOP_AFTER_POST
	ran[0] || refused[0]; /* so that the stop is not what wakes the loop */
#endif
#ifdef PARENT_STOP
	scope = 1; /* beginStop is called later, on another goroutine */
#endif
	beginStop(s, n, changed);
	assert(raised && !pending);
	d_step { scope = 1; stopReturned = 1; s = 0; changed = 0 }
}

/* Quiesce: one request, answered at once or by the loop. After the time-out it checks itself. */
bit idleWaiter, answered;

#ifdef QUIET_WHILE_BUSY
#define EXECUTED (len(queue) == 0)
#else
#define EXECUTED (pushed == executed)
#endif

#ifdef IGNORE_PROMISED
#define NO_OFFLOAD (offloads == 0)
#else
#define NO_OFFLOAD (offloads == 0 && promised == 0)
#endif

/* checkQuiet checks that everything is quiet if counts says so. */
inline checkQuiet() {
	if
	:: NO_OFFLOAD && EXECUTED -> assert(!busy && promised == 0 && len(queue) == 0)
	:: else
	fi
}

inline notifyIdleWaiters() {
	d_step {
		if
		:: idleWaiter ->
			idleWaiter = 0;
			answered = 1;
			checkQuiet()
		:: else
		fi
	}
}

proctype quiesce() {
	lock();
	idleWaiter = 1;
	if
	:: sleeping || state == IDLE || state == STOPPED -> notifyIdleWaiters()
	:: else
	fi;
	unlock();
	if
	:: answered == 1
	:: true -> /* the time-out */
		lock();
		d_step { idleWaiter = 0; checkQuiet() };
		unlock()
	fi
}

proctype loop() {
	byte f, n, s;
	bit m, changed;
	/* begin and runInit */
	atomic { if :: state == IDLE -> state = STARTING :: else -> goto out fi };
#ifdef IDLE_WITHOUT_GUARD
	guard = 1;
#endif
	if
	:: scope -> beginStop(s, m, changed); goto finish
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
		/* the chunk belongs to the loop; the queue also models what is queued behind it, in order */
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
	:: state == STOPPING && DELIVERED -> goto over
	:: else
	fi;
	lock();
	if :: len(queue) > 0 -> goto next :: else fi;
#else
	if
	:: state == STOPPING && DELIVERED -> unlock(); goto over
	:: else
	fi;
#endif
	if
	:: wakeRequested -> wakeRequested = 0; unlock(); goto take
	:: else
	fi;
	notifyIdleWaiters();
	sleeping = 1;
	d_step { waiting = 1; mu = 0 };
	atomic { signal == 1 -> signal = 0 };
	lock();
	goto next;
over:
	assert(offloads == 0 || poolAccepted); /* what the counters report at the end */
finish:
#ifndef LOOP_DOES_NOT_NOTIFY
	notifyStopped(m);
#endif
	lock();
	atomic { assert(state == STOPPING); state = STOPPED };
	notifyIdleWaiters();
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
#ifdef QUIESCE
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
	assert(promised == 0 && offloads == 0);
	i = 0;
	do
	:: i < MAX ->
		assert(ran[i] == accepted[i]);
		assert(!(accepted[i] && refused[i]));
		i++
	:: else -> break
	od
}
