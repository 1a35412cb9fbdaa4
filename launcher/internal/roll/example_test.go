package roll_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A group of two instances is rolled so that at least two instances are always ready. In this
// example an instance becomes ready as soon as it is started and ends as soon as it is asked to
// stop.
func ExampleNext() {
	config := roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1}
	view := roll.View{Instances: []roll.Instance{{ID: "kv-1", Health: roll.Ready}, {ID: "kv-2", Health: roll.Ready}}}
	state := roll.Begin(config, view)
	for number := 3; !state.Phase.Ended(); {
		var action roll.Action
		state, action = roll.Next(config, state, view)
		switch action.Do {
		case roll.Start:
			id := fmt.Sprint("kv-", number)
			number++
			fmt.Println("start", id)
			view.Instances = append(view.Instances, roll.Instance{ID: id, Version: action.Version, Health: roll.Ready, Since: view.Now})
		case roll.Stop:
			fmt.Println("stop", action.ID)
			view.Instances = slices.DeleteFunc(view.Instances, func(i roll.Instance) bool { return i.ID == action.ID })
		}
	}
	fmt.Println(state.Phase)
	// Output:
	// start kv-3
	// stop kv-1
	// start kv-4
	// stop kv-2
	// done
}

// A replacement fails, and the roll pauses until it is resumed.
func ExampleRoll() {
	config := roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 1}
	view := roll.View{Instances: []roll.Instance{{ID: "kv-1", Revision: 1, Health: roll.Ready}}}
	r := &roll.Roll{From: 1, To: 2, Reason: "a new binary"}
	r.Begin(config, view)
	step := r.Next(config, view)
	fmt.Println("start a process of revision", r.RevisionOf(step.Action.Version))

	r.CountFailure(2, roll.Failure{Instance: "kv-2", Cause: errors.New("exit status 1")})
	step = r.Next(config, view)
	fmt.Println("pauses:", step.Change == roll.Pauses, r.Failure())
	fmt.Println("wanted while paused: revision", r.Wanted())

	r.Resume(config, view)
	step = r.Next(config, view)
	fmt.Println("start a process of revision", r.RevisionOf(step.Action.Version))
	// Output:
	// start a process of revision 2
	// pauses: true kv-2: exit status 1
	// wanted while paused: revision 1
	// start a process of revision 2
}
