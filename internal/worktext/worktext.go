// Package worktext says in ordinary words what the guards of a report stand for.
package worktext

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/ctxkey"
)

// A List says for which work, such as requests, the guards of a report are held. The zero List is
// empty.
type List struct {
	// Named are the oldest requests, the oldest first. Their age is known without tracing.
	Named []ctxkey.NamedWork
	// Nameable is the number of all requests, including those that are not in Named.
	Nameable int

	kinds   map[kind]int     // how many pieces of work there are of each kind, such as requests or jobs
	waiting map[kind]int     // guards that only wait for others; named if no others are held
	traced  ctxkey.NamedWork // the oldest of the guards that were passed to AddTraced
}

// A kind is a kind of work, such as "request", or, if that is not known, the path of a scope.
type kind struct{ noun, path string }

func (k kind) count(n int) string {
	if k.noun != "" {
		return Pluralize(n, k.noun)
	}
	return fmt.Sprintf("%s ×%d", cmp.Or(k.path, "unnamed work"), n)
}

// PathOr returns the path of a scope, or a text that stands for it if no scope on the path has a
// name.
func PathOr(path string) string { return cmp.Or(path, "(unnamed)") }

// Pluralize returns n and the noun, as in "1 guard", "2 guards" and "2 processes".
func Pluralize(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// Add adds the guards of the scope with the given path. d says what they stand for, and is nil if
// that is not known. Add returns the number of guards that the report counts. If one guard stands
// for several pieces of work, the report counts each piece as a guard. Add also returns whether the
// ages of the guards in a trace matter: they do not if the guards are requests, whose age is known,
// or if they belong to code that only waits for other guards.
func (l *List) Add(d *ctxkey.WorkDescriber, path string, guards int) (counted int, agesMatter bool) {
	if l.kinds == nil {
		l.kinds, l.waiting = map[kind]int{}, map[kind]int{}
	}
	if d == nil {
		l.kinds[kind{path: path}] += guards
		return guards, true
	}
	w := d.Describe(guards)
	if w.Extra > 0 {
		l.kinds[kind{path: path}] += w.Extra
		if guards -= w.Extra; guards == 0 {
			return w.Extra, true
		}
	}
	if counted = guards; w.Shared {
		counted = max(w.Count, 1)
	}
	counted += w.Extra
	if w.Count == 0 {
		l.waiting[kind{path: path}] += guards
		return counted, w.Extra > 0
	}
	l.kinds[kind{noun: w.Noun}] += w.Count
	if len(w.Named) > 0 {
		l.Nameable += w.Count
		l.Named = append(l.Named, w.Named...)
		slices.SortStableFunc(l.Named, func(a, b ctxkey.NamedWork) int { return cmp.Compare(b.Age, a.Age) })
		l.Named = l.Named[:min(len(l.Named), ctxkey.MaxNamed)]
	}
	return counted, len(w.Named) == 0
}

// AddTraced adds the age of a traced guard, and the name of the line that acquired it. Of guards of
// the same age, the first by name counts.
func (l *List) AddTraced(name string, age time.Duration) {
	if c := cmp.Compare(age, l.traced.Age); c > 0 || c == 0 && name < l.traced.Name {
		l.traced = ctxkey.NamedWork{Name: name, Age: age}
	}
}

// Summary returns the kinds of work with their numbers, and the oldest piece of work: a request, or
// the oldest traced guard, if that is older.
func (l *List) Summary() string {
	counts := l.kinds
	if len(counts) == 0 {
		counts = l.waiting
	}
	if len(counts) == 0 {
		return "nothing"
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b kind) int {
		// Kinds with a noun, such as requests, come before kinds that are only paths of scopes.
		return cmp.Or(cmp.Compare(min(len(b.noun), 1), min(len(a.noun), 1)),
			cmp.Compare(counts[b], counts[a]), cmp.Compare(a.noun, b.noun), cmp.Compare(a.path, b.path))
	})
	const maxKinds = 5
	var names []string
	for i, k := range kinds {
		if i == maxKinds {
			names = append(names, "others")
			break
		}
		names = append(names, k.count(counts[k]))
	}
	last := len(names) - 1
	text := names[last]
	if last > 0 {
		text = strings.Join(names[:last], ", ") + " and " + text
	}
	oldest := l.traced
	if len(l.Named) > 0 && l.Named[0].Age >= oldest.Age {
		oldest = l.Named[0]
	}
	if oldest.Name != "" {
		text += fmt.Sprintf(", oldest %d s: %s", (oldest.Age+time.Second-1)/time.Second, oldest.Name)
	}
	return text
}
