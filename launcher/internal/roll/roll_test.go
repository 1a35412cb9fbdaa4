package roll_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// expectLog compares what has happened since the last call with what should have happened.
func (w *world) expectLog(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.log); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(w.broken) > 0 {
		t.Errorf("broken: %s", strings.Join(w.broken, "; "))
	}
	w.log = nil
}

// at returns the index of an instance in the view.
func (w *world) at(id string) int {
	for k, i := range w.view.Instances {
		if i.ID == id {
			return k
		}
	}
	panic("there is no " + id)
}

func (w *world) isReady(id string)     { w.becomeReady(w.at(id)); w.act() }
func (w *world) isUnhealthy(id string) { w.becomeUnhealthy(w.at(id)); w.act() }
func (w *world) ends(id string)        { w.end(w.at(id)); w.act() }

func begin(c roll.Config, old int) *world {
	w := newWorld(c, old)
	w.act()
	return w
}

func TestNext_StartsReplacementBeforeItStopsOldInstance(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1}, 2)
	w.expectLog(t, "0s start new")
	w.isReady("new-3")
	w.expectLog(t, "0s new-3 is ready", "0s stop old-1: replaced")
	w.ends("old-1")
	w.expectLog(t, "0s old-1 has ended", "0s start new")
	w.isReady("new-4")
	w.expectLog(t, "0s new-4 is ready", "0s stop old-2: replaced")
	w.ends("old-2")
	w.expectLog(t, "0s old-2 has ended", "0s done paused=false given up=0: ")
}

func TestNext_CountsStoppingInstancesUntilTheyEnd(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 1, MaxSurge: 1}, 2)
	w.isReady("new-3") // new-3 takes the place of the second old instance, which may now be stopped
	w.expectLog(t, "0s start new", "0s stop old-1: replaced", "0s new-3 is ready", "0s stop old-2: replaced")
	if w.state.Phase.Ended() {
		t.Error("the roll has ended while old instances are stopping")
	}
}

func TestNext_WithoutSurgeStopsOldInstanceBeforeReplacement(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 2}, 3)
	w.expectLog(t, "0s stop old-1: replaced")
	w.ends("old-1")
	w.expectLog(t, "0s old-1 has ended", "0s start new")
	w.isReady("new-4")
	w.expectLog(t, "0s new-4 is ready", "0s stop old-2: replaced")
}

func TestNext_LargeSurgeStartsSeveralReplacementsAtOnce(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 3}, 3)
	w.expectLog(t, "0s start new", "0s start new", "0s start new")
	w.isReady("new-5")
	w.expectLog(t, "0s new-5 is ready", "0s stop old-1: replaced")
}

// MinHealthy allows that two old instances are stopped. After the first stop, another old instance
// crashes. Then the second stop is no longer allowed, so Next must not order both at once.
func TestNext_ChecksMinHealthyBeforeEachStop(t *testing.T) {
	c := roll.Config{Desired: 3, MinHealthy: 1, MaxSurge: 1}
	w := newWorld(c, 3)
	var action roll.Action
	w.state, action = roll.Next(c, w.state, w.view)
	w.add(action.Version, roll.Starting)
	w.state, action = roll.Next(c, w.state, w.view)
	if diff := cmp.Diff(roll.Action{Do: roll.Stop, ID: "old-1", Why: "replaced"}, action); diff != "" {
		t.Fatal(diff)
	}
	w.view.Instances[0].Health = roll.Stopping
	w.end(w.at("old-2")) // old-2 crashes between the two decisions
	w.state, action = roll.Next(c, w.state, w.view)
	testkit.Equal(t, "after a crash between two stops", action, roll.Action{Do: roll.Start, Version: roll.New})
}

func TestNext_ReplacesInstancesThatAreNeverReady(t *testing.T) {
	c := roll.Config{Desired: 3, MinHealthy: 2}
	w := newWorld(c, 1)
	w.add(roll.Old, roll.Starting)
	w.add(roll.Old, roll.Starting)
	w.act()
	w.expectLog(t, "0s stop old-2: replaced")
	w.ends("old-2")
	w.expectLog(t, "0s old-2 has ended", "0s start new")
	w.isReady("new-4")
	w.expectLog(t, "0s new-4 is ready", "0s stop old-3: replaced")
}

// As long as the new instance is not ready, old instances that are about to become ready are not
// stopped.
func TestNext_DoesNotStopOldInstancesThatAreStarting(t *testing.T) {
	w := newWorld(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1}, 0)
	w.add(roll.Old, roll.Starting)
	w.add(roll.Old, roll.Starting)
	w.act()
	w.expectLog(t, "0s start new")
	w.isReady("old-1")
	w.isReady("old-2")
	w.expectLog(t, "0s old-1 is ready", "0s old-2 is ready")
}

func TestNext_WaitsUntilInstanceHasBeenReadyForMinReady(t *testing.T) {
	w := begin(roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 1, MinReady: 5 * time.Second}, 1)
	w.view.Now += time.Second
	w.becomeReady(w.at("new-2"))
	if until := w.act(); until != 11*time.Second {
		t.Errorf("waits until %v, want 11s, when the instance has been ready for 5s", until)
	}
	w.expectLog(t, "5s start new", "6s new-2 is ready")
	w.view.Now += 5*time.Second - 1
	w.act()
	w.expectLog(t)
	w.view.Now++
	w.act()
	w.expectLog(t, "11s stop old-1: replaced")
}

func TestNext_PausesRollAfterFailure(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 1, MaxSurge: 1}, 2)
	w.expectLog(t, "0s start new", "0s stop old-1: replaced")
	w.isUnhealthy("new-3")
	w.expectLog(t, "0s new-3 is unhealthy", "0s rolling paused=true given up=0: failures of new instances in a row: 1", "0s stop new-3: unhealthy")
	w.ends("new-3")
	w.ends("old-1")
	w.expectLog(t, "0s new-3 has ended", "0s old-1 has ended")

	w.state = w.state.Resume(w.config, w.view)
	w.settle()
	if w.state.Phase != roll.Done {
		t.Errorf("phase after Resume and success is %v, want done", w.state.Phase)
	}
}

func TestState_RollsBackIfReplacementFailsAndPolicyIsRollback(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1, OnFailure: roll.Rollback}, 2)
	w.isReady("new-3")
	w.ends("old-1")
	w.log = nil
	w.ends("new-4") // the first replacement became ready, the second one fails
	w.expectLog(t, "0s new-4 crashes", "0s rolling back paused=false given up=0: failures of new instances in a row: 1", "0s start old")
	w.isReady("old-5")
	w.expectLog(t, "0s old-5 is ready", "0s stop new-3: replaced")
	w.ends("new-3")
	w.expectLog(t, "0s new-3 has ended", "0s rolled back paused=false given up=0: failures of new instances in a row: 1")
}

func TestState_FailedRollbackPausesRoll(t *testing.T) {
	w := begin(roll.Config{Desired: 1, OnFailure: roll.Rollback}, 1)
	w.ends("old-1")
	w.ends("new-2")
	w.log = nil
	w.ends("old-3")
	w.expectLog(t, "0s old-3 crashes", "0s rolling back paused=true given up=0: failures of old instances in a row: 1")
}

func TestState_RequestedRollbackRestoresOldRevision(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 1, MaxSurge: 1}, 2)
	w.isReady("new-3")
	w.state = w.state.Rollback(w.config, w.view, "by order")
	w.settle()
	if w.state.Phase != roll.RolledBack || w.state.Why != "by order" || w.count(of(roll.New)) != 0 {
		t.Errorf("%+v", w.state)
	}
	over := w.state
	if again := over.Rollback(w.config, w.view, "again"); again != over || over.Resume(w.config, w.view) != over {
		t.Error("Rollback or Resume changes a roll that has ended")
	}
}

func TestOnFailureContinue_KeepsOldInstanceForEachFailedReplacement(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 1, OnFailure: roll.Continue}, 3)
	w.ends("new-4")
	w.expectLog(t, "0s start new", "0s new-4 crashes", "0s rolling paused=false given up=1: failures of new instances in a row: 1", "0s start new")
	w.settle()
	if w.state.Phase != roll.Degraded || w.count(of(roll.Old)) != 1 || w.count(of(roll.New)) != 2 {
		t.Errorf("%v with %+v", w.state.Phase, w.view.Instances)
	}
}

// If all replacements fail, the roll is rolled back although the configuration says Continue.
func TestOnFailureContinue_RollsBackIfAllReplacementsFail(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 2, OnFailure: roll.Continue}, 3)
	w.ends("old-1")
	w.ends("new-4")
	w.ends("new-5")
	w.ends("new-6")
	if w.state.Phase != roll.RollingBack || w.count(ready) != 2 {
		t.Errorf("%v with %+v", w.state.Phase, w.view.Instances)
	}
	w.settle()
	if w.state.Phase != roll.RolledBack || w.count(of(roll.Old)) != 3 {
		t.Errorf("%v with %+v", w.state.Phase, w.view.Instances)
	}
}

// After a replacement has been given up, an old instance stays in its place. Scaling down that old
// instance must not stop any other instance.
func TestScaleDown_OfOldInstanceStopsNoOtherInstance(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 2, MaxSurge: 1, OnFailure: roll.Continue}, 3)
	w.ends("new-4")
	w.ends("old-1")
	w.isReady("new-5")
	w.isReady("new-6")
	w.scaleDown(w.at("old-3")) // old-2 is still stopping
	w.log = nil
	w.act()
	w.ends("old-3")
	w.ends("old-2")
	w.expectLog(t, "0s old-3 has ended", "0s old-2 has ended", "0s done paused=false given up=0: failures of new instances in a row: 1")

	// One replacement has been given up, so one old instance is to stay. Three old instances remain
	// when old-1 is scaled down, so the roll goes on until only one is left.
	w = begin(roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 1, OnFailure: roll.Continue}, 3)
	w.ends("new-4")
	w.scaleDown(w.at("old-1"))
	if w.settle(); w.state.Phase != roll.Degraded || w.count(of(roll.Old)) != 1 || w.count(of(roll.New)) != 1 {
		t.Errorf("%v with %+v", w.state.Phase, w.view.Instances)
	}
}

func TestNext_RetriesFailedReplacementWithBackoff(t *testing.T) {
	w := begin(roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 1, Retries: 3, Backoff: time.Second, MaxBackoff: 3 * time.Second}, 1)
	w.ends("new-2")
	w.expectLog(t, "0s start new", "0s new-2 crashes")
	for _, at := range []time.Duration{1 * time.Second, 3 * time.Second, 6 * time.Second} { // after delays of 1 s, 2 s, and 3 s, which is MaxBackoff
		if until := w.act(); until != at {
			t.Fatalf("waits until %v, want %v", until, at)
		}
		w.view.Now = at
		w.act()
		w.expectLog(t, at.String()+" start new")
		w.ends(w.view.Instances[1].ID)
		w.log = w.log[1:]
	}
	w.expectLog(t, "6s rolling paused=true given up=0: failures of new instances in a row: 4")
}

func TestNext_ReplacementThatSucceedsResetsFailureCount(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1, Retries: 1}, 2)
	w.ends("new-3")
	w.isReady("new-4")
	w.ends("old-1")
	w.ends("new-5")
	if w.state.Paused {
		t.Errorf("paused by one failure after a success: %s", w.state.Why)
	}
}

func TestNext_WaitsForCanariesBeforeItReplacesOthers(t *testing.T) {
	c := roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 2, Canary: 1, CanaryWait: time.Minute, ProgressDeadline: 10 * time.Second}
	w := begin(c, 3)
	w.isReady("new-4")
	w.ends("old-1")
	w.expectLog(t, "0s start new", "0s new-4 is ready", "0s stop old-1: replaced", "0s old-1 has ended")
	w.view.Now = time.Minute - 1 // the time spent waiting for canaries does not count as a stall
	w.act()
	w.expectLog(t)
	w.view.Now++
	w.act()
	w.expectLog(t, "1m0s rolling paused=false given up=0: ", "1m0s start new", "1m0s start new")
}

// Canaries that are checked let the others follow only after they have passed a check that began
// after the wait. A check that they passed earlier does not suffice.
func TestNext_NeedsCanaryCheckThatBeganAfterCanaryWait(t *testing.T) {
	c := roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1, Canary: 1, CanaryWait: time.Minute, Checked: true, ProgressDeadline: time.Hour}
	w := begin(c, 2)
	w.view.Now = time.Second
	w.isReady("new-3")
	w.ends("old-1")
	w.log = nil
	w.view.Now, w.view.PassedAt = 61*time.Second, 61*time.Second-1
	w.act()
	w.expectLog(t)
	w.view.PassedAt++
	w.act()
	w.expectLog(t, "1m1s rolling paused=false given up=0: ", "1m1s start new")
}

// If the canaries fail their check, the roll is rolled back, whatever OnFailure is. A roll that
// cannot be rolled back pauses.
func TestNext_RollsBackWhenCanariesFailTheirCheck(t *testing.T) {
	const why = "the canaries have failed their check"
	for _, test := range []struct {
		policy      roll.OnFailure
		onlyForward bool
		want        string
	}{
		{roll.Pause, false, "0s rolling back paused=false given up=0: " + why},
		{roll.Continue, false, "0s rolling back paused=false given up=0: " + why},
		{roll.Rollback, false, "0s rolling back paused=false given up=0: " + why},
		{roll.Pause, true, "0s canary paused=true given up=0: " + why},
		{roll.Continue, true, "0s canary paused=true given up=0: " + why},
	} {
		c := roll.Config{Desired: 2, MinHealthy: 1, MaxSurge: 1, Canary: 1, CanaryWait: time.Minute, Checked: true, OnFailure: test.policy, OnlyForward: test.onlyForward}
		w := begin(c, 2)
		w.isReady("new-3")
		w.log = nil
		w.view.Rejected = true
		w.act()
		if len(w.log) == 0 || w.log[0] != test.want {
			t.Errorf("%v, only forward %v: %q, want %q", test.policy, test.onlyForward, w.log, test.want)
		}
	}
}

// After CanaryWait, the roll waits for the answer of the canary check. If there is none by the
// progress deadline, the roll has failed.
func TestNext_CanaryCheckWithoutAnswerFailsRollAtProgressDeadline(t *testing.T) {
	for policy, want := range map[roll.OnFailure]string{
		roll.Pause:    "40s canary paused=true given up=0: the check of the canaries has given no answer for 30s",
		roll.Rollback: "40s rolling back paused=false given up=0: the check of the canaries has given no answer for 30s",
	} {
		w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1, Canary: 1, CanaryWait: 10 * time.Second, Checked: true, ProgressDeadline: 30 * time.Second, OnFailure: policy}, 2)
		w.isReady("new-3")
		w.ends("old-1")
		w.log = nil
		w.view.Now = 40*time.Second - 1
		if until := w.act(); until != 40*time.Second {
			t.Errorf("waits until %v", until)
		}
		w.expectLog(t)
		w.view.Now++
		w.act()
		if len(w.log) == 0 || w.log[0] != want {
			t.Errorf("%v: %q, want %q", policy, w.log, want)
		}
	}
}

// While the roll waits for canaries, old instances cannot be started, so each old instance that
// fails is replaced by a new one. That new one neither counts as a canary nor prolongs the wait.
func TestNext_ReplacesFailedOldInstanceWhileWaitingForCanary(t *testing.T) {
	c := roll.Config{Desired: 3, MinHealthy: 2, MaxSurge: 1, Canary: 1, CanaryWait: time.Minute, OnlyForward: true}
	w := begin(c, 3)
	w.isReady("new-4")
	w.ends("old-1")
	w.expectLog(t, "0s start new", "0s stop old-1: replaced", "0s new-4 is ready", "0s old-1 has ended")
	w.view.Now = 10 * time.Second
	w.ends("old-2")
	w.expectLog(t, "10s old-2 crashes", "10s start new")
	w.isReady("new-5")
	w.isUnhealthy("old-3")
	w.expectLog(t, "10s new-5 is ready", "10s old-3 is unhealthy", "10s start new", "10s stop old-3: replaced")
	w.isReady("new-6")
	w.ends("old-3")
	w.expectLog(t, "10s new-6 is ready", "10s old-3 has ended")
	if at, ok := w.state.CanaryUntil(c, w.view); at != time.Minute || !ok {
		t.Errorf("CanaryUntil is %v, %v, want 1m0s, true", at, ok)
	}
	w.view.Now = time.Minute
	w.act()
	w.expectLog(t, "1m0s done paused=false given up=0: ")
}

func TestOnFailureContinue_PausesWhenCanaryFails(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 1, Canary: 1, CanaryWait: time.Minute, OnFailure: roll.Continue}, 3)
	w.isReady("new-4")
	w.log = nil
	w.ends("new-4")
	w.expectLog(t, "0s new-4 crashes", "0s canary paused=true given up=0: failures of new instances in a row: 1")
}

func TestNext_PausesRollWithoutProgressAtDeadline(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1, ProgressDeadline: 10 * time.Second}, 2)
	w.view.Now = 9 * time.Second
	w.isReady("new-3") // an instance that becomes ready counts as progress
	w.view.Now = 18 * time.Second
	w.act()
	w.log = nil
	if until := w.act(); until != 19*time.Second {
		t.Errorf("waits until %v", until)
	}
	w.view.Now = 19 * time.Second // although 19 s have passed, old-1 has not ended yet
	w.act()
	w.expectLog(t, "19s rolling paused=true given up=0: no progress for 10s")
}

func TestNext_RollAlsoReachesChangedNumberOfInstances(t *testing.T) {
	for _, desired := range []int{0, 2, 5} {
		w := begin(roll.Config{Desired: desired, MaxSurge: 1}, 3)
		w.settle()
		if len(w.broken) > 0 || w.state.Phase != roll.Done || len(w.view.Instances) != desired {
			t.Errorf("roll from 3 to %d instances: %v, %v", desired, w.state.Phase, w.broken)
		}
	}
}

func TestConfig_BackoffDoesNotOverflow(t *testing.T) {
	const forever = 1<<63 - 1
	w := begin(roll.Config{Desired: 1, MaxSurge: 1, MinHealthy: 1, Retries: 200, Backoff: time.Hour, MaxBackoff: forever - 1<<40}, 1)
	w.view.Failures[roll.New] += 100
	w.view.Instances = w.view.Instances[:1]
	if until := w.act(); until <= w.view.Now {
		t.Errorf("waits until %v", until)
	}
}

// If an old instance fails while a roll waits for canaries, the roll starts another old instance in
// its place, as soon as View.NoOldStart is false.
func TestNext_StartsOldInstanceWhileWaitingForCanary(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 2, MaxSurge: 1, Canary: 1, CanaryWait: time.Minute}, 3)
	w.isReady("new-4")
	w.ends("old-1")
	w.log = nil
	w.view.NoOldStart = true
	w.ends("old-2")
	w.expectLog(t, "0s old-2 crashes")
	w.view.NoOldStart = false
	w.act()
	w.expectLog(t, "0s start old")
}

// During the back-off after a failed replacement, an old instance is started only if fewer than
// MinHealthy are left.
func TestNext_StartsOldInstanceDuringBackoffToKeepMinHealthy(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 2, MaxSurge: 1, Retries: 3, Backoff: time.Second}, 3)
	w.ends("old-1")
	w.log = nil
	w.ends("new-4")
	w.ends("new-5")
	w.expectLog(t, "0s new-4 crashes", "0s new-5 crashes")
	w.ends("old-2")
	w.expectLog(t, "0s old-2 crashes", "0s start old")
}

// A roll that is handed over to another launcher goes on in the same way.
func TestRoll_ContinuesAfterJSONRoundTrip(t *testing.T) {
	c := roll.Config{Desired: 3, MinHealthy: 2, MaxSurge: 1, Canary: 1, CanaryWait: time.Minute, Retries: 1, Backoff: time.Second, ProgressDeadline: time.Hour}
	view := roll.View{Now: time.Second}
	for _, id := range []string{"a", "b", "c"} {
		view.Instances = append(view.Instances, roll.Instance{ID: id, Revision: 1, Health: roll.Ready})
	}
	r := &roll.Roll{From: 1, To: 2, Reason: "test"}
	r.Begin(c, view)
	r.Next(c, view)
	r.CountFailure(2, roll.Failure{Instance: "d", Cause: errors.New("broken")})
	view.Now += time.Second
	r.Next(c, view)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again := &roll.Roll{}
	if err := json.Unmarshal(text, again); err != nil {
		t.Fatal(err)
	}
	if text2, _ := json.Marshal(again); string(text2) != string(text) {
		t.Errorf("written again: %s\nwant: %s", text2, text)
	}
	for range 5 {
		view.Now += time.Second
		if diff := cmp.Diff(r.Next(c, view), again.Next(c, view)); diff != "" {
			t.Errorf("next step (-want +got):\n%s", diff)
		}
	}
}
