package stacks_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/swansong-go/swansong/internal/stacks"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// docs/internals/process.md#progress
func TestUserFrames_AreOfFunctionThatLibraryCalled(t *testing.T) {
	const (
		load  = "sync/atomic.(*Pointer[...]).Load"
		walk  = stacks.ModulePath + "internal/packed.(*Node).Walk"
		visit = stacks.ModulePath + "ctxshutdown.(*Swansong).Force.func1"
		force = stacks.ModulePath + "ctxshutdown.(*Swansong).Force"
		goes  = stacks.ModulePath + "ctxshutdown.(*Swansong).Go.func1"
		user  = "example.com/shop.(*Cart).Pay"
	)
	for name, test := range map[string]struct{ stack, want []string }{
		"a function passed to Go":             {[]string{load, user, goes}, []string{load, user}},
		"in a call of Force":                  {[]string{load, visit, walk, force, user}, nil},
		"in Force, in a function given to Go": {[]string{load, visit, walk, force, user, goes}, []string{load, visit, walk, force, user}},
		"a goroutine of the program":          {[]string{load, user}, nil},
		"a function of the standard library":  {[]string{load, goes}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var g stacks.Group
			for _, f := range test.stack {
				g.Frames = append(g.Frames, stacks.Frame{Function: f})
			}
			var got []string
			for _, f := range g.UserFrames() {
				got = append(got, f.Function)
			}
			testkit.Equal(t, "frames", got, test.want)
		})
	}
}
