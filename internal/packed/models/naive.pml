/* The specification's own algorithm (section 8), to show that the invariant is one that fails: the guard that takes a
 * word from zero walks up and increments the ancestors. Root and leaf, two guards, one stop.
 */
short count[2];
byte held;
bit stopped;

proctype guard() {
	short v;
	d_step { v = count[1]; count[1]++ };
	if
	:: v == 0 -> count[0]++
	:: else
	fi;
	held++;
	d_step { held--; count[1]--; v = count[1] };
	if
	:: v == 0 -> count[0]--
	:: else
	fi
}

proctype stopper() { stopped = 1 }

active proctype monitor() {
end:
	d_step { (stopped && held && count[0] == 0) -> assert(false) }
}

init { atomic { run guard(); run guard(); run stopper() } }
