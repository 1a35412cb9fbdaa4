package graceful

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// The state machine of the phases has few states. The test extends every sequence of events until
// it leads to a state that is already known, and checks every step.
func TestPhases_StateMachineObeysRulesForEverySequenceOfEvents(t *testing.T) {
	const depth = 12
	why := errors.New("why")
	for _, delay := range []time.Duration{0, 5 * time.Second} {
		start := phases{delay: delay, soft: 10 * time.Second, hard: 2 * time.Second, maxExtension: 3 * time.Second}
		start.Since = time.Unix(0, 0)
		tried, seen := 0, map[string]int{}
		var try func(p phases, did []action, trail string, n int)
		try = func(p phases, did []action, trail string, n int) {
			done := slices.Clone(did)
			slices.Sort(done)
			state := fmt.Sprint(p.Phase, min(p.Signals, 5), slices.Compact(done))
			if n <= seen[state] || t.Failed() {
				return
			}
			seen[state] = n
			for kind := asked; kind <= drained; kind++ {
				for _, after := range []time.Duration{time.Second, 20 * time.Second} {
					if after > time.Second && kind != timerFired {
						continue // of all events, only timerFired depends on the exact time
					}
					next := p
					e := event{kind: kind, at: p.Since.Add(after), cause: why}
					if !p.Until.IsZero() && after > time.Second {
						e.at = p.Until
					}
					todo := next.step(e)
					tried++
					name := fmt.Sprintf("%s %d+%v", trail, kind, after)
					if err := check(p, e, next, todo, did); err != nil {
						t.Fatalf("delay %v, events%s: %v\nfrom %+v\n  to %+v\ntodo %v", delay, name, err, p, next, todo)
					}
					try(next, slices.Concat(did, todo), name, n-1)
				}
			}
		}
		try(start, nil, "", depth)
		t.Logf("delay %v: %d states, %d steps", delay, len(seen), tried)
	}
}

// check compares one step of the state machine with the rules in its documentation.
func check(p phases, e event, next phases, todo, did []action) error {
	down := int(next.Phase - p.Phase)
	has := func(list []action, a action) bool { return slices.Contains(list, a) }
	all := slices.Concat(did, todo)
	switch {
	case down < 0:
		return errors.New("the phase changed to an earlier one")
	case down == 0 && next.Until != p.Until:
		return errors.New("the end of the phase was moved, but not by Extend")
	case p.Phase == Exit && len(todo) > 0:
		return errors.New("an action after Exit")
	case down > 1 && e.kind != drained && e.kind != forced && !(p.Phase == Serving && next.Phase == Soft):
		return errors.New("a phase was skipped")
	case p.Phase == Serving && next.Phase == Soft && p.delay > 0 && e.kind != returned && e.kind != stopped:
		return errors.New("the phase LameDuck was skipped")
	case next.Phase == LameDuck && p.delay == 0:
		return errors.New("the phase LameDuck began although its delay is 0")
	case e.kind == signalled && next.Signals != p.Signals+1, e.kind != signalled && next.Signals != p.Signals:
		return errors.New("the number of signals is wrong")
	case e.kind == signalled && p.Phase > Serving && p.Signals == 0 && down != 0:
		return errors.New("the first signal changed the phase of a stop that had another reason")
	case e.kind == signalled && p.Phase > Serving && p.Phase < Exit && p.Signals > 0 && down != 1:
		return errors.New("a further signal did not lead to the next phase")
	case e.kind == asked && p.Phase > Serving && down != 0:
		return errors.New("the end of the context changed the phase of a stop that had begun")
	case e.kind == timerFired && (p.Until.IsZero() || e.at.Before(p.Until)) && down != 0:
		return errors.New("the timer ended a phase whose time was not over")
	case e.kind == timerFired && p.Phase < Exit && !p.Until.IsZero() && !e.at.Before(p.Until) && down != 1:
		return errors.New("the timer did not end a phase whose time was over")
	case e.kind == drained && (next.Phase == Exit) != (p.Phase >= Soft):
		return errors.New("Exit did not begin when the scope had drained, or began too early")
	case next.Phase == Exit && p.Phase != Exit && next.outcome != map[bool]outcome{true: cutShort, false: clean}[p.Phase == Hard] && e.kind == drained:
		return fmt.Errorf("wrong outcome after a drain: %v", next.outcome)
	case next.Phase == Exit && p.Phase != Exit && e.kind != drained && (next.outcome != abandoned || !has(todo, abandon)):
		return errors.New("Exit began before the drain had ended, but the guards were not abandoned")
	case next.Phase > Serving && next.Phase < Exit && next.Cause == nil, p.Cause != nil && next.Cause != p.Cause:
		return errors.New("the cause is missing or has changed")
	case next.Phase > Serving && e.kind != drained && !has(all, turnUnready):
		return errors.New("the readiness was not turned off")
	case down > 0 && next.Phase == Soft && !has(todo, runHooks):
		return errors.New("Soft began without the hooks")
	case has(todo, shutdown) && (!has(did, runHooks) || e.kind != hooksDone):
		return errors.New("Shutdown was called before the hooks had ended")
	case e.kind == hooksDone && p.Phase == Soft && !has(todo, shutdown):
		return errors.New("Shutdown was not called after the hooks")
	case down > 0 && next.Phase == Hard && !has(todo, force):
		return errors.New("Hard began without Force")
	case (next.Phase == LameDuck || next.Phase == Soft || next.Phase == Hard) == next.Until.IsZero():
		return errors.New("LameDuck, Soft or Hard has no time limit, or another phase has one")
	}
	for _, a := range []action{turnUnready, runHooks, force, abandon} {
		if count := len(all) - len(slices.DeleteFunc(slices.Clone(all), func(b action) bool { return a == b })); count > 1 {
			return fmt.Errorf("action %d was done %d times", a, count)
		}
	}
	return nil
}

// A SIGTERM or SIGHUP within a second of a signal that counts does not count, in any phase. A
// repeated signal that does not count does not start another second.
func TestPhases_SignalRepeatedWithinSecondIsIgnored(t *testing.T) {
	why := errors.New("why")
	at := time.Unix(0, 0)
	p := phases{delay: time.Hour, soft: time.Hour, hard: time.Hour}
	for _, phase := range []Phase{LameDuck, Soft, Hard, Exit} {
		p.step(event{kind: signalled, at: at, cause: why, mayRepeat: true})
		if p.Phase != phase || p.Signals != int(phase) {
			t.Fatalf("after signal %d the phase is %v, want %v", p.Signals, p.Phase, phase)
		}
		before := p
		for _, after := range []time.Duration{0, 600 * time.Millisecond, repeatTime - 1} {
			if todo := p.step(event{kind: signalled, at: at.Add(after), cause: why, mayRepeat: true}); p != before || len(todo) > 0 {
				t.Fatalf("a signal repeated after %v changed the state from %+v to %+v", after, before, p)
			}
		}
		at = at.Add(repeatTime)
	}
	p = phases{soft: time.Hour, hard: time.Hour}
	p.step(event{kind: signalled, at: at, cause: why, mayRepeat: true})
	if p.step(event{kind: signalled, at: at, cause: why}); p.Phase != Hard {
		t.Errorf("a SIGINT right after a SIGTERM led to %v", p.Phase)
	}
}

// No sequence of extensions moves the end of Soft to an earlier time, or by more than maxExtension
// in total.
func TestPhases_ExtensionsNeverShortenDrainOrExceedLimitInTotal(t *testing.T) {
	start := time.Unix(0, 0)
	for _, delay := range []time.Duration{0, 5 * time.Second} {
		p := phases{delay: delay, soft: 10 * time.Second, hard: 2 * time.Second, maxExtension: 7 * time.Second}
		p.step(event{kind: signalled, at: start, cause: errors.New("why")})
		first := p.softEnd()
		for at := time.Duration(0); ; at += 500 * time.Millisecond {
			now := start.Add(at)
			if p.step(event{kind: timerFired, at: now}); p.Phase == Hard {
				if want := first.Add(p.maxExtension); now != want || p.Extended != p.maxExtension {
					t.Errorf("delay %v: Hard at %v with %v granted, want %v with %v", delay, now.Sub(start), p.Extended, want.Sub(start), p.maxExtension)
				}
				if granted, moved := p.extend(now, time.Second, ""); granted != 0 || moved != 0 {
					t.Errorf("in the phase Hard, %v was granted", granted)
				}
				break
			}
			d := at % (4 * time.Second)
			before := p.softEnd()
			granted, moved := p.extend(now, d, "")
			end := p.softEnd()
			switch {
			case end.Sub(before) != moved || moved < 0:
				t.Fatalf("at %v: the end of Soft moved by %v, but extend returned %v", at, end.Sub(before), moved)
			case granted > d || granted > end.Sub(now) || granted < 0:
				t.Fatalf("at %v: %v of %v granted, with %v left", at, granted, d, end.Sub(now))
			case granted < d && p.Extended != p.maxExtension:
				t.Fatalf("at %v: only %v of %v granted, although another %v could be granted", at, granted, d, p.maxExtension-p.Extended)
			case p.Extended > p.maxExtension || end != first.Add(p.Extended):
				t.Fatalf("at %v: extended by %v of %v", at, p.Extended, p.maxExtension)
			}
		}
	}
}
