// Package stacks lists the goroutines of the program with their stacks, for reports about
// goroutines that delay a shutdown.
package stacks

import (
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/swansong-go/swansong/internal/worktext"
)

// A Group is a number of goroutines that have the same stack and the same pprof labels.
type Group struct {
	Count  int
	Frames []Frame // the calls of the stack, the innermost one first
	labels string
}

// A Frame is one function call.
type Frame struct {
	Function string // the full name, as in "example.com/shop.(*Cart).Pay"
	Line     string // where the function is executing, as in "/src/cart.go:15"
}

// All returns all goroutines of the program except for the calling one. It stops the program for a
// moment, and takes a few microseconds for each goroutine.
func All() (groups []Group) {
	var profile strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // writing to a Builder does not fail
	for text := range strings.SplitSeq(profile.String(), "\n\n") {
		if g := parse(text); !g.contains("runtime/pprof.writeGoroutine") {
			groups = append(groups, g)
		}
	}
	return groups
}

// parse reads a group of goroutines of a profile, such as
//
//	2 @ 0x47d96e 0x45f146
//	# labels: {"swansong":"app/jobs"}
//	#	0x4dbf5d	main.work+0x9d	/src/main.go:15
func parse(text string) (g Group) {
	head, _, _ := strings.Cut(text, " @ ")
	// Before the first group, the profile has a headline. The number of goroutines of the first
	// group is in the line after the headline.
	g.Count, _ = strconv.Atoi(head[strings.LastIndexByte(head, '\n')+1:])
	_, labels, _ := strings.Cut(text, "\n# labels: ")
	g.labels, _, _ = strings.Cut(labels, "\n")
	for line := range strings.Lines(text) {
		frame := strings.Split(strings.TrimSpace(line), "\t")
		if len(frame) < 4 || frame[0] != "#" {
			continue
		}
		function := frame[2]
		if i := strings.LastIndex(function, "+0x"); i > 0 {
			function = function[:i]
		}
		g.Frames = append(g.Frames, Frame{function, frame[len(frame)-1]})
	}
	return g
}

// Label returns the value of a pprof label. It returns false if the goroutines do not have the
// label.
func (g Group) Label(key string) (value string, ok bool) {
	// Search for the key in quotes. It cannot match inside the value of a label, because quotes are
	// escaped there.
	_, value, ok = strings.Cut(g.labels, strconv.Quote(key)+":")
	if !ok {
		return "", false
	}
	value, err := strconv.QuotedPrefix(value)
	if err != nil {
		return "", false
	}
	value, err = strconv.Unquote(value)
	return value, err == nil
}

// Write writes the stack below a title with the number of goroutines, such as "2 goroutines of
// app:". It leaves out the frames for which skip returns true; a nil skip leaves out none.
func (g Group) Write(b *strings.Builder, title string, skip func(function string) bool) {
	fmt.Fprintf(b, "%s%s:\n", worktext.Pluralize(g.Count, "goroutine"), title)
	for _, f := range g.Frames {
		if skip == nil || !skip(f.Function) {
			fmt.Fprintf(b, "\t%s\n\t\t%s\n", f.Function, f.Line)
		}
	}
}

// maxStacks is the maximum number of different stacks that OfScopes lists.
const maxStacks = 50

// OfScopes returns the stacks of the goroutines that work for the scopes with the given paths, in
// the format of a traceback. These are the goroutines whose pprof label with the given key has one
// of the paths as its value. OfScopes leaves out the frames for which skip returns true. It finds
// the goroutines in a profile of all goroutines of the program; see [All].
func OfScopes(key string, paths map[string]bool, skip func(function string) bool) string {
	var b strings.Builder
	found := 0
	for _, g := range All() {
		path, ok := g.Label(key)
		if !ok || !paths[path] {
			continue
		}
		if found++; found <= maxStacks {
			g.Write(&b, " of "+worktext.PathOr(path), skip)
		}
	}
	if found > maxStacks {
		fmt.Fprintf(&b, "and %s\n", worktext.Pluralize(found-maxStacks, "more stack"))
	}
	return b.String()
}

// UserFrames returns the frames of the function that a package of this module has called for the
// user, and of what that function calls: of a callback, a job, a handler, or a function that was
// passed to Go. It returns nil if there is no such function, or if that function and all that it
// calls are in the standard library.
func (g Group) UserFrames() []Frame {
	user := false
	for i, f := range g.Frames {
		switch {
		case IsLibrary(f.Function):
			if user {
				return g.Frames[:i]
			}
		case !isStandard(f.Function):
			user = true
		}
	}
	return nil
}

// RunsProgram reports whether the goroutines run a function of the program. Functions of the
// standard library do not count, nor do those of packages of this module that call functions of the
// user, nor those of packages whose path begins with one of the prefixes.
func (g Group) RunsProgram(prefixes ...string) bool {
	return slices.ContainsFunc(g.Frames, func(f Frame) bool {
		isOther := func(path string) bool { return strings.HasPrefix(f.Function, path) }
		return !isStandard(f.Function) && !IsLibrary(f.Function) && !slices.ContainsFunc(prefixes, isOther)
	})
}

func (g Group) contains(function string) bool {
	for _, f := range g.Frames {
		if f.Function == function {
			return true
		}
	}
	return false
}

// ModulePath is the beginning of the import paths of this module.
const ModulePath = "github.com/swansong-go/swansong/"

// IsLibrary reports whether the function with the given full name belongs to a package of this
// module that calls functions of the user and acquires guards for them, or that names or counts
// these guards.
func IsLibrary(function string) bool {
	function, ok := strings.CutPrefix(function, ModulePath)
	if !ok {
		return false
	}
	pkg, _, _ := strings.Cut(function, ".")
	switch pkg {
	case "ctxshutdown", "eventloop", "graceful", "httpdrain", "httpdrain/internal/wire", "integrations/http3drain",
		"internal/copyio", "internal/ctxkey", "internal/packed", "internal/panics":
		return true
	}
	return false
}

// isStandard reports whether a function belongs to the standard library. The first element of the
// import path of any other package has a dot, unless the package is main or in the main module.
func isStandard(function string) bool {
	first, _, _ := strings.Cut(function, "/")
	if first == function {
		first, _, _ = strings.Cut(function, ".") // the path of the package has one element, as in fmt.Println
	}
	return first != "main" && !strings.Contains(first, ".") && !strings.HasPrefix(function, mainModule())
}

// mainModule returns the path of the main module. If the program has no information about its
// build, mainModule returns a text with which no function begins.
var mainModule = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path != "" {
		return info.Main.Path
	}
	return "/"
})
