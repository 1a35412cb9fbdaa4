/* The published algorithm, which loses a guard: the guard that takes a counter from zero to one goes up and increments the
 * ancestors. Root and leaf, two guards of the leaf, one stop of the root.
 * docs/internals/counting.md#the-published-algorithm
 */
short count[2];
byte guards;
bit stopped;

proctype guard() {
	short v;
	d_step { v = count[1]; count[1]++ };
	if
	:: v == 0 -> count[0]++
	:: else
	fi;
	guards++;
	d_step { guards--; count[1]--; v = count[1] };
	if
	:: v == 0 -> count[0]--
	:: else
	fi
}

proctype stopper() { stopped = 1 }

active proctype monitor() {
end:
	d_step { (stopped && guards && count[0] == 0) -> assert(false) }
}

init { atomic { run guard(); run guard(); run stopper() } }
