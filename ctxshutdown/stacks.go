package ctxshutdown

import (
	"cmp"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
)

// labelKey is the key of the pprof label that a goroutine started by Go carries where traced. The value is the path of
// its scope.
const labelKey = "swansong"

// label labels the calling goroutine, which runs under g, and returns the context to go on with. It carries the label
// too: package pprof takes what a goroutine goes back to after [pprof.Do] from the context, not from the goroutine.
func (g *Guard) label(ctx context.Context) context.Context {
	if g == nil || g.trace == nil {
		return ctx
	}
	ctx = pprof.WithLabels(ctx, pprof.Labels(labelKey, g.scope.path()))
	pprof.SetGoroutineLabels(ctx)
	return ctx
}

// maxStacks is how many different stacks an error carries.
const maxStacks = 50

// stacks returns where the goroutines that were started by Go in the traced scopes of the report are now, in the manner
// of a traceback. It has to ask for all goroutines of the program, which takes a few microseconds for each.
func (r GuardReport) stacks() string {
	held := map[string]bool{}
	for _, e := range r.entries {
		if e.Site != "" {
			held[e.Path] = true
		}
	}
	if len(held) == 0 {
		return ""
	}
	var profile, b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // a Builder does not fail
	found := 0
	for group := range strings.SplitSeq(profile.String(), "\n\n") {
		path, ok := scopeLabel(group)
		if !ok || !held[path] {
			continue
		}
		if found++; found <= maxStacks {
			writeStack(&b, path, group)
		}
	}
	if found > maxStacks {
		fmt.Fprintf(&b, "and %s\n", many(found-maxStacks, "more stack"))
	}
	return b.String()
}

// scopeLabel returns the path of the scope in a group of goroutines of a profile, such as
//
//	2 @ 0x47d96e 0x45f146
//	# labels: {"swansong":"app/jobs"}
//	#	0x4dbf5d	main.work+0x9d	/src/main.go:15
func scopeLabel(group string) (path string, ok bool) {
	_, labels, _ := strings.Cut(group, "\n# labels: ")
	labels, _, _ = strings.Cut(labels, "\n")
	_, value, ok := strings.Cut(labels, strconv.Quote(labelKey)+":") // in a quoted value, the quotes are escaped
	if !ok {
		return "", false
	}
	value, err := strconv.QuotedPrefix(value)
	if err != nil {
		return "", false
	}
	path, err = strconv.Unquote(value)
	return path, err == nil
}

// writeStack writes a group without its addresses, which say nothing in a log.
func writeStack(b *strings.Builder, path, group string) {
	head, _, _ := strings.Cut(group, " @ ")
	n, _ := strconv.Atoi(head[strings.LastIndexByte(head, '\n')+1:]) // after the first line of the profile
	fmt.Fprintf(b, "%s of %s:\n", many(n, "goroutine"), cmp.Or(path, unnamed))
	for line := range strings.Lines(group) {
		frame := strings.Split(strings.TrimSpace(line), "\t")
		if len(frame) < 4 || frame[0] != "#" {
			continue
		}
		function := frame[2]
		if strings.HasPrefix(function, packagePath+"run.") || strings.HasPrefix(function, packagePath+"(*Group).start.") {
			continue // is below all of them
		}
		if i := strings.LastIndex(function, "+0x"); i > 0 {
			function = function[:i]
		}
		fmt.Fprintf(b, "\t%s\n\t\t%s\n", function, frame[len(frame)-1])
	}
}
