package httpdrain

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// A debugView is the JSON. Times are the server's; what a page counts down or up is given in milliseconds from `time`,
// so that nobody's clock has to be right.
type debugView struct {
	Time     time.Time      `json:"time"`
	Scope    string         `json:"scope"` // its path, empty for a root without a name
	State    string         `json:"state"` // Running, ShuttingDown, Complete
	Forced   bool           `json:"forced"`
	Cause    string         `json:"cause,omitempty"`
	Guards   int            `json:"guards"`
	AtStop   int            `json:"guards_at_stop"` // the most since the stop
	Scopes   int            `json:"scopes"`         // that hold guards
	Ladder   *debugRung     `json:"ladder"`         // null where no graceful.Process runs the scope
	Blockers []debugBlocker `json:"blockers"`       // the first few; oldest first, then most guards
	Filter   string         `json:"filter,omitempty"`
	Tree     *debugNode     `json:"tree"`
	Timeline debugTimeline  `json:"timeline"`
}

type debugRung struct {
	Rung      string `json:"rung"`
	Since     int64  `json:"since_ms"`               // how long on it
	Next      string `json:"next,omitempty"`         // rung
	Remaining *int64 `json:"remaining_ms,omitempty"` // until then; absent: at the next signal, or never
	Cause     string `json:"cause,omitempty"`
	Signals   int    `json:"signals"`
	Extended  int64  `json:"extended_ms"`
	Reason    string `json:"reason,omitempty"`
}

// A debugBlocker is a scope or, where that would be many, all that is below one.
type debugBlocker struct {
	Path   string `json:"path"`
	Site   string `json:"site,omitempty"`
	Scopes int    `json:"scopes"`
	Guards int    `json:"guards"`
	Oldest int64  `json:"oldest_ms,omitempty"`
}

// A debugTimeline is what has been recorded: from a point on, that many guards are held.
type debugTimeline struct {
	Points []debugPointView `json:"points"`
	Marks  []debugMarkView  `json:"marks"`
}

type debugPointView struct {
	Ago    int64 `json:"ago_ms"`
	Guards int   `json:"guards"`
}

type debugMarkView struct {
	Ago  int64  `json:"ago_ms"`
	Step string `json:"step"`
}

func newDebugView(now *debugState, filter string) *debugView {
	t := newDebugTree(now, filter)
	all := t
	if filter != "" {
		all = newDebugTree(now, "")
	}
	v := &debugView{
		Time: now.at.UTC().Round(0), Scope: printable(now.path, 2*maxName), State: now.state.String(), Forced: now.forced,
		Guards: now.guards, AtStop: now.atStop, Filter: filter, Tree: t.debugNode, Blockers: all.blockers, Scopes: all.Scopes,
		Timeline: debugTimeline{Points: []debugPointView{}, Marks: []debugMarkView{}},
	}
	if now.cause != nil {
		v.Cause = printable(now.cause.Error(), 300)
	}
	if st := now.status; st != nil {
		v.Ladder = &debugRung{
			Rung: stepOf(st.Rung).String(), Since: age(now.at, st.Since), Signals: st.Signals,
			Extended: st.Extended.Milliseconds(), Reason: printable(st.Reason, 300),
		}
		if st.Cause != nil {
			v.Ladder.Cause = printable(st.Cause.Error(), 300)
		}
		if st.Rung < graceful.Exit && st.Rung > graceful.Serving && now.state != ctxshutdown.Complete {
			v.Ladder.Next = stepOf(st.Rung + 1).String()
			if !st.Until.IsZero() {
				left := max(0, st.Until.Sub(now.at).Milliseconds())
				v.Ladder.Remaining = &left
			}
		}
	}
	for _, p := range now.points {
		v.Timeline.Points = append(v.Timeline.Points, debugPointView{age(now.at, p.at), p.guards})
	}
	for _, m := range now.marks {
		v.Timeline.Marks = append(v.Timeline.Marks, debugMarkView{age(now.at, m.at), m.step.String()})
	}
	return v
}

// A debugStep is a rung, or the end.
type debugStep int

const (
	stepServing debugStep = iota
	stepDuck
	stepSoft
	stepHard
	stepExit
	stepDone
)

func stepOf(r graceful.Rung) debugStep { return debugStep(r) }

func (st debugStep) String() string {
	return [...]string{"Serving", "LameDuck", "Soft", "Hard", "Exit", "Complete"}[min(max(st, 0), stepDone)]
}

// title is for people.
func (st debugStep) title() string {
	return [...]string{"Serving", "Lame duck", "Soft", "Hard", "Exit", "Drained"}[min(max(st, 0), stepDone)]
}

// printable cuts s, and escapes in it what would break a line or pretend to be something else: names are printable
// already, errors, reasons and headers need not be.
func printable(s string, most int) string {
	var b strings.Builder
	n := 0
	for i, c := range s {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if c == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
				continue
			}
		}
		if strconv.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		q := strconv.QuoteRune(c)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// duration is short, for people. The script has the same in JavaScript.
func duration(ms int64) string {
	s := ms / 1000
	switch {
	case ms < 10_000:
		return strconv.FormatInt(s, 10) + "." + strconv.FormatInt(ms/100%10, 10) + " s"
	case s < 60:
		return strconv.FormatInt(s, 10) + " s"
	case s < 3600:
		return strconv.FormatInt(s/60, 10) + " min " + strconv.FormatInt(s%60, 10) + " s"
	case s < 86400:
		return strconv.FormatInt(s/3600, 10) + " h " + strconv.FormatInt(s/60%60, 10) + " min"
	}
	return strconv.FormatInt(s/86400, 10) + " d " + strconv.FormatInt(s/3600%24, 10) + " h"
}

// count is "1 guard", "12,345 guards".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return thousands(n) + " " + what
}

func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// whole is the next round length of time for an axis.
func whole(d time.Duration) time.Duration {
	steps := []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute,
		2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
	}
	if i := slices.IndexFunc(steps, func(s time.Duration) bool { return s >= d }); i >= 0 {
		return steps[i]
	}
	return (d/time.Hour + 1) * time.Hour
}
