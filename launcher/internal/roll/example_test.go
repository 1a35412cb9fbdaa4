package roll_test

import (
	"fmt"
	"slices"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A group of two is rolled without ever fewer than two that are ready. Here an instance becomes ready as soon as it is
// started, and is gone as soon as it is told to stop.
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
