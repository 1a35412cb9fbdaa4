package roll_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A trace is what the controllers of Kubernetes did in a roll, as launcher/internal/kube recorded it. The controllers came
// to rest after each step, so every decision in it belongs to one state.
type trace struct {
	Version        string // of Kubernetes
	Desired        int
	MaxSurge       int
	MaxUnavailable int
	MinReady       bool
	Life           string
	Steps          []struct {
		Event string
		Scale []string
		Then  [2]counts
	}
}

// A counts is how many instances are starting, ready for too short a time, available, and stopping.
type counts [4]int

const (
	starting = iota
	fresh
	proven
	stopping
)

func (c counts) live() int { return c[starting] + c[fresh] + c[proven] }

func exist(n [2]counts) int {
	return n[roll.Old].live() + n[roll.Old][stopping] + n[roll.New].live() + n[roll.New][stopping]
}

// happens returns what there is after an event, and before anybody has done anything about it.
func happens(t *testing.T, event string, minReady bool, n [2]counts) [2]counts {
	t.Helper()
	what, of, _ := strings.Cut(event, " ")
	v := roll.Old
	if of == roll.New.String() {
		v = roll.New
	}
	to := func(from, to int) { n[v][from]--; n[v][to]++ }
	switch what {
	case "ready":
		if minReady {
			to(starting, fresh)
		} else {
			to(starting, proven)
		}
	case "prove":
		to(fresh, proven)
	case "relapse": // it crashes, and is started again, by the ReplicaSet or the restart policy
		to(fresh, starting)
	case "crash":
		to(proven, starting)
	case "end":
		n[v][stopping]--
	case "update", "undo":
	default:
		t.Fatalf("there is no event %q", event)
	}
	return n
}

// A done is what has been decided between two states.
type done struct {
	Started int    // of the target
	Stopped [2]int // by version
	Left    [2]int // available ones that are, by version
}

func difference(target roll.Version, before, after [2]counts) (d done) {
	for v := range before {
		d.Stopped[v] = after[v][stopping] - before[v][stopping]
		d.Left[v] = after[v][proven]
	}
	d.Started = after[target].live() + d.Stopped[target] - before[target].live()
	return d
}

// recorded returns a world that looks like that of a trace.
func recorded(c roll.Config, n [2]counts, target roll.Version) *world {
	w := newWorld(c, 0)
	for v := range n {
		for h, health := range []roll.Health{roll.Starting, roll.Ready, roll.Ready, roll.Stopping} {
			for range n[v][h] {
				if w.add(roll.Version(v), health); h == proven {
					w.prove(len(w.view.Instances) - 1)
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
			n[i.Version][proven]++
		case i.Health == roll.Ready:
			n[i.Version][fresh]++
		case i.Health == roll.Stopping:
			n[i.Version][stopping]++
		default:
			n[i.Version][starting]++
		}
	}
	return n
}

// TestAgreesWithKubernetes puts Next into each state that a Deployment was in, and compares what it decides with what the
// controllers did. It stops those that they stopped and starts those that they started, but for two differences, which are
// meant:
//
//   - A pod that has been told to stop does not count for a Deployment any more. Here an instance keeps its place until it is
//     gone. KEP-3973 proposes the same for Deployments, as podReplacementPolicy: TerminationComplete; Kubernetes 1.36 has
//     that for Jobs, and of the proposal only status.terminatingReplicas.
//   - A pod that is ready, but not yet for minReadySeconds, is unavailable for a Deployment, and goes before others do. Here
//     it stays while fewer than MinHealthy are available, since it does work.
func TestAgreesWithKubernetes(t *testing.T) {
	text, err := os.ReadFile("testdata/kubernetes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	traces, steps, patient, kept := 0, 0, 0, 0
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
		end := func(v roll.Version) (n [2]counts) { n[v][proven] = r.Desired; return n }
		then, target := end(roll.Old), roll.New
		for k, s := range r.Steps {
			steps++
			if s.Event == "undo" {
				target = roll.Old
			}
			before := happens(t, s.Event, r.MinReady, then)
			then = s.Then

			want := difference(target, before, then)
			if room := max(0, c.Desired+c.MaxSurge-exist(before)); want.Started > room {
				want.Started = room
				patient++
			}
			if other := 1 - target; before[roll.Old][proven]+before[roll.New][proven] < c.MinHealthy && then[other][fresh] < before[other][fresh] {
				want.Stopped[other] -= before[other][fresh] - then[other][fresh]
				kept++
			}
			w := recorded(c, before, target)
			w.act()
			if diff := cmp.Diff(want, difference(target, before, w.counts())); diff != "" || len(w.broken) > 0 {
				t.Errorf("%+v, %s, step %d: %s, at %v, where Kubernetes decides %v (-want +got):\n%s%s\n%s",
					c, r.Life, k, s.Event, before, s.Scale, diff, strings.Join(w.broken, "; "), strings.Join(w.log, "\n"))
			}
			// From here on, if all goes well, both come to the same.
			if w.settle(); w.counts() != end(target) || !w.state.Phase.Ended() || len(w.broken) > 0 {
				t.Errorf("%+v, %s, step %d: it ends as %v, %v: %s", c, r.Life, k, w.state.Phase, w.counts(), strings.Join(w.broken, "; "))
			}
		}
		if then != end(target) {
			t.Errorf("%+v, %s: the trace ends with %v", c, r.Life, then)
		}
	}
	t.Logf("%d steps of %d rolls; in %d, an instance that was stopping kept its place; in %d, one that was ready stayed", steps, traces, patient, kept)
	if want := 105 * 5; traces != want && !t.Failed() {
		t.Errorf("%d traces, and not five of each of 105 small Deployments", traces)
	}
	if patient == 0 || kept == 0 {
		t.Error("a difference that is meant is in no trace")
	}
}
