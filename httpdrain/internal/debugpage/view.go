package debugpage

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// A view is a snapshot prepared for output; the JSON format is its encoding. The browser counts the
// times on the page up or down, from milliseconds relative to the field Time. So the clock of the
// browser need not be right.
type view struct {
	Time     time.Time  `json:"time"`
	Scope    string     `json:"scope"` // the path of the scope; empty for a root without a name
	State    string     `json:"state"` // state of the scope: Running, ShuttingDown or Complete
	Forced   bool       `json:"forced"`
	Cause    string     `json:"cause,omitempty"`
	Summary  string     `json:"summary"` // what the guards stand for, in ordinary words
	Guards   int        `json:"guards"`
	AtStop   int        `json:"guards_at_stop"`     // the largest number of guards held since the stop
	Scopes   int        `json:"scopes"`             // number of scopes that hold guards
	Phase    *phaseView `json:"phase"`              // the phase of the process; null without a graceful.Process
	Requests []request  `json:"requests,omitempty"` // the oldest requests, without those that Tree names
	Blockers []blocker  `json:"blockers"`           // at most maxBlockers, those with the oldest guards first
	Filter   string     `json:"filter,omitempty"`
	IsTraced bool       `json:"-"` // the age of some guard is known, or no guard is held; if false, the page explains WithTrace
	Tree     *node      `json:"tree"`
	Timeline timeline   `json:"timeline"`
}

// A phaseView is the phase of the process.
type phaseView struct {
	Name      string `json:"name"`
	Since     int64  `json:"since_ms"`               // time in this phase
	Next      string `json:"next,omitempty"`         // the phase that follows
	Remaining *int64 `json:"remaining_ms,omitempty"` // time until the next phase; absent if unknown
	Cause     string `json:"cause,omitempty"`
	Signals   int    `json:"signals"`
	Extended  int64  `json:"extended_ms"`
	Reason    string `json:"reason,omitempty"`
}

// A request is an HTTP request that is being served.
type request struct {
	Request string `json:"request"` // as in "GET /orders/{id} from 192.0.2.1:4711"
	Age     int64  `json:"age_ms"`
}

// A blocker is a scope, or a scope with all scopes below it, whose guards delay the completion.
type blocker struct {
	Path   string `json:"path"`
	Site   string `json:"site,omitempty"`
	Scopes int    `json:"scopes"`
	Guards int    `json:"guards"`
	Oldest int64  `json:"oldest_ms,omitempty"`
}

// A timeline has the number of guards that were held from each recorded time on, and the steps that
// were reached.
type timeline struct {
	Points []pointView `json:"points"`
	Marks  []markView  `json:"marks"`
}

type pointView struct {
	Ago    int64 `json:"ago_ms"`
	Guards int   `json:"guards"`
}

type markView struct {
	Ago  int64  `json:"ago_ms"`
	Step string `json:"step"`
}

func newView(now *snapshot, filter string) *view {
	t := newTree(now, filter)
	all := t
	if filter != "" {
		all = newTree(now, "")
	}
	v := &view{
		Time: now.at.UTC().Round(0), Scope: printable(now.path, 2*maxName), State: now.state.String(), Forced: now.forced,
		Guards: now.guards, AtStop: now.maxGuards, Filter: filter, Tree: t.node, Blockers: all.blockers, Scopes: all.Scopes,
		Summary: printable(now.summary, 400), IsTraced: now.guards == 0 || now.isTraced(),
		Timeline: timeline{Points: []pointView{}, Marks: []markView{}},
	}
	for _, q := range now.requests {
		v.Requests = append(v.Requests, request{printable(q.Request, 2*maxName), q.Age.Milliseconds()})
	}
	if now.cause != nil {
		v.Cause = printable(now.cause.Error(), 300)
	}
	if now.status != nil {
		v.Phase = newPhaseView(now)
	}
	for _, p := range now.points {
		v.Timeline.Points = append(v.Timeline.Points, pointView{millisSince(now.at, p.at), p.guards})
	}
	for _, m := range now.marks {
		v.Timeline.Marks = append(v.Timeline.Marks, markView{millisSince(now.at, m.at), m.step.String()})
	}
	return v
}

func newPhaseView(now *snapshot) *phaseView {
	st := now.status
	p := &phaseView{
		Name: stepOf(st.Phase).String(), Since: millisSince(now.at, st.Since), Signals: st.Signals,
		Extended: st.Extended.Milliseconds(), Reason: printable(st.Reason, 300),
	}
	if st.Cause != nil {
		p.Cause = printable(st.Cause.Error(), 300)
	}
	if st.Phase < graceful.Exit && st.Phase > graceful.Serving && now.state != ctxshutdown.Complete {
		p.Next = stepOf(st.Phase + 1).String()
		if !st.Until.IsZero() {
			left := max(0, st.Until.Sub(now.at).Milliseconds())
			p.Remaining = &left
		}
	}
	return p
}

// A step is a phase of the process or the completion of the scope.
type step int

const (
	stepServing step = iota
	stepLameDuck
	stepSoft
	stepHard
	stepExit
	stepDone
)

// stepOf returns the step for a phase. The first steps have the order of the phases.
func stepOf(phase graceful.Phase) step { return step(phase) }

// String returns the name of the step in the JSON format.
func (s step) String() string {
	return [...]string{"Serving", "LameDuck", "Soft", "Hard", "Exit", "Complete"}[min(max(s, 0), stepDone)]
}

// title returns the name of the step as the page shows it.
func (s step) title() string {
	return [...]string{"Serving", "Lame duck", "Soft", "Hard", "Exit", "Drained"}[min(max(s, 0), stepDone)]
}

// printable returns s, shortened to limit characters, with control and formatting characters
// escaped. Unescaped, such a character in the name of a scope, in an error or in a header could
// break a line or imitate other text.
func printable(s string, limit int) string {
	var b strings.Builder
	n := 0
	for i, c := range s {
		if n++; n > limit {
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

// duration formats a number of milliseconds for the page, in the same way as the function duration
// in page.js.
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

// count formats a number with a noun, as in "1 guard" and "12,345 guards".
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return thousands(n) + " " + thing
}

func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
