package roll_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A trace lists what the Kubernetes controllers started and stopped in a roll, as
// launcher/internal/kube recorded it. The recorder waited after each step until the controllers did
// nothing more, so each decision belongs to one state.
type trace struct {
	Version        string // the version of Kubernetes
	Desired        int
	MaxSurge       int
	MaxUnavailable int
	MinReady       bool
	Life           string
	Steps          []struct {
		Event string
		Scale []string
		Then  versions
	}
}

// counts are the numbers of instances that are starting, ready but not available, available, and
// stopping.
type counts [4]int

const (
	starting = iota
	newlyReady
	available
	stopping
)

func (c counts) live() int { return c[starting] + c[newlyReady] + c[available] }

// versions has the counts of the old pods, of the new ones, and, if an update has superseded the
// roll, of the newer ones.
type versions []counts

var names = []string{"old", "new", "newer"}

// inRoll returns the counts from the view of a roll that leads to the version target. Such a roll
// takes all other versions together for the one that it replaces.
func (n versions) inRoll(target int) (seen [2]counts) {
	as := roll.New
	if target == 0 {
		as = roll.Old
	}
	for v := range n {
		to := as
		if v != target {
			to = 1 - as
		}
		for h := range n[v] {
			seen[to][h] += n[v][h]
		}
	}
	return seen
}

func exist(n [2]counts) int {
	return n[roll.Old].live() + n[roll.Old][stopping] + n[roll.New].live() + n[roll.New][stopping]
}

// afterEvent returns the numbers of instances after an event and before the controllers have
// reacted to it.
func afterEvent(t *testing.T, event string, minReady bool, then versions) versions {
	t.Helper()
	what, of, _ := strings.Cut(event, " ")
	n, v := slices.Clone(then), max(0, slices.Index(names, of))
	to := func(from, to int) { n[v][from]--; n[v][to]++ }
	switch what {
	case "ready":
		if minReady {
			to(starting, newlyReady)
		} else {
			to(starting, available)
		}
	case "prove":
		to(newlyReady, available)
	case "relapse": // a newly ready instance crashes and is started again
		to(newlyReady, starting)
	case "crash":
		to(available, starting)
	case "end":
		n[v][stopping]--
	case "update", "undo", "supersede":
	default:
		t.Fatalf("unknown event %q", event)
	}
	return n
}

// A decision says how many instances were started and stopped between two states of a roll.
type decision struct {
	Started int    // number of started instances of the version that the roll leads to
	Stopped [2]int // numbers of stopped instances by version
	Left    [2]int // numbers of instances that are available afterwards, by version
}

func difference(target roll.Version, before, after [2]counts) (d decision) {
	for v := range before {
		d.Stopped[v] = after[v][stopping] - before[v][stopping]
		d.Left[v] = after[v][available]
	}
	d.Started = after[target].live() + d.Stopped[target] - before[target].live()
	return d
}

// worldOf returns a world with the given numbers of instances.
func worldOf(c roll.Config, n [2]counts, target roll.Version) *world {
	w := newWorld(c, 0)
	for v := range n {
		for h, health := range []roll.Health{roll.Starting, roll.Ready, roll.Ready, roll.Stopping} {
			for range n[v][h] {
				if w.add(roll.Version(v), health); h == available {
					w.makeAvailable(len(w.view.Instances) - 1)
				}
			}
		}
	}
	if w.state = roll.Begin(c, w.view); target == roll.Old {
		w.state = w.state.Rollback(c, w.view, "undone")
	}
	return w
}

func (w *world) counts() (n [2]counts) {
	for _, i := range w.view.Instances {
		switch {
		case w.available(i):
			n[i.Version][available]++
		case i.Health == roll.Ready:
			n[i.Version][newlyReady]++
		case i.Health == roll.Stopping:
			n[i.Version][stopping]++
		default:
			n[i.Version][starting]++
		}
	}
	return n
}

// TestNext_DecidesAsKubernetesDeploymentInRecordedStates calls Next in each state of a recorded
// Deployment, and compares its decision with that of the controllers. There are two intended
// differences:
//
//   - A Deployment does not count a pod that has been told to stop. Here an instance counts until
//     it is gone. KEP-3973 proposes the same for Deployments (podReplacementPolicy:
//     TerminationComplete); Kubernetes 1.36 has it for Jobs.
//   - If a pod has been ready for less than minReadySeconds, a Deployment treats it as unavailable
//     and stops it before other pods. Here such an instance already serves requests, so it is kept
//     while fewer than MinHealthy instances are available.
func TestNext_DecidesAsKubernetesDeploymentInRecordedStates(t *testing.T) {
	text, err := os.ReadFile("testdata/kubernetes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	traces, steps, delayed, kept := 0, 0, 0, 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan() && !t.Failed(); traces++ {
		var r trace
		in := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		in.DisallowUnknownFields()
		if err := in.Decode(&r); err != nil {
			t.Fatal(err)
		}
		c := roll.Config{Desired: r.Desired, MaxSurge: r.MaxSurge, MinHealthy: r.Desired - r.MaxUnavailable}
		if r.MinReady {
			c.MinReady = time.Hour
		}
		then, to := make(versions, len(r.Steps[0].Then)), 1
		then[0][available] = r.Desired
		for k, s := range r.Steps {
			steps++
			switch s.Event {
			case "undo":
				to = 0
			case "supersede":
				to = 2
			}
			target := roll.New
			if to == 0 {
				target = roll.Old
			}
			before, after := afterEvent(t, s.Event, r.MinReady, then).inRoll(to), s.Then.inRoll(to)
			then = s.Then

			want := difference(target, before, after)
			if room := max(0, c.Desired+c.MaxSurge-exist(before)); want.Started > room {
				want.Started = room
				delayed++
			}
			if other := 1 - target; before[roll.Old][available]+before[roll.New][available] < c.MinHealthy && after[other][newlyReady] < before[other][newlyReady] {
				want.Stopped[other] -= before[other][newlyReady] - after[other][newlyReady]
				kept++
			}
			w := worldOf(c, before, target)
			w.act()
			if diff := cmp.Diff(want, difference(target, before, w.counts())); diff != "" || len(w.broken) > 0 {
				t.Errorf("%+v, %s, step %d: %s, at %v, where Kubernetes decides %v (-want +got):\n%s%s\n%s",
					c, r.Life, k, s.Event, before, s.Scale, diff, strings.Join(w.broken, "; "), strings.Join(w.log, "\n"))
			}
			// From this state on, let everything succeed in the roll. It must end with the
			// instances with which the Deployment ends.
			end := make(versions, len(then))
			end[to][available] = r.Desired
			if w.settle(); w.counts() != end.inRoll(to) || !w.state.Phase.Ended() || len(w.broken) > 0 {
				t.Errorf("%+v, %s, step %d: the roll ends as %v, %v: %s", c, r.Life, k, w.state.Phase, w.counts(), strings.Join(w.broken, "; "))
			}
		}
		end := make(versions, len(then))
		if end[to][available] = r.Desired; !slices.Equal(then, end) {
			t.Errorf("%+v, %s: the trace ends with %v", c, r.Life, then)
		}
	}
	t.Logf("%d steps of %d rolls; in %d a start was delayed by a stopping instance; in %d a newly ready instance stayed", steps, traces, delayed, kept)
	if want := 105 * 6; traces != want && !t.Failed() {
		t.Errorf("%d traces, want six of each of 105 small Deployments", traces)
	}
	if delayed == 0 || kept == 0 {
		t.Error("no trace has one of the intended differences")
	}
}
