package httpdrain

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

//go:embed debug/page.html debug/page.css debug/page.js
var debugFiles embed.FS

type debugAsset struct {
	page   *template.Template
	style  template.CSS
	script template.JS
	policy string
}

// debugAssets are read when they are needed. Style and script stand in the page as they are in the files, so their
// hashes are known, and whatever else a name might smuggle in has the wrong one.
var debugAssets = sync.OnceValue(func() debugAsset {
	read := func(name string) string {
		b, err := debugFiles.ReadFile("debug/" + name)
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	style, script := read("page.css"), read("page.js")
	return debugAsset{
		page: template.Must(template.New("page").Funcs(template.FuncMap{
			"duration": duration, "count": count, "thousands": thousands,
		}).Parse(read("page.html"))),
		style: template.CSS(style), script: template.JS(script),
		policy: "default-src 'none'; script-src " + hash(script) + "; style-src " + hash(style) +
			"; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'" +
			"; require-trusted-types-for 'script'; trusted-types swansong",
	}
})

// A debugPageData is a view in words and colors.
type debugPageData struct {
	*debugView
	Tone                string // serving, duck, soft, hard, done
	Where               string // on which rung, in which state
	Headline, Sentence  string
	Why                 string // the cause
	Say                 string // by a screen reader, when Key changes
	Key                 string
	NextLabel, NextText string
	NextLeft, NextAge   *int64 // counted down, up
	Released            int
	Steps               []debugStepView
	Chart               debugChart
	Rows, Matched       int
	Refresh             int // seconds, without JavaScript
	Program, Host       string
	PID                 int
	Style               template.CSS
	Script              template.JS
}

type debugStepView struct {
	Title, Note, When string
	Left              *int64
	State             string // done, current, todo, skipped
}

// debugPage is the whole page, debugPart what changes in it.
func debugPage(now *debugState, filter string) []byte { return debugExecute("page", now, filter) }
func debugPart(now *debugState, filter string) []byte { return debugExecute("live", now, filter) }

func debugExecute(name string, now *debugState, filter string) []byte {
	var b bytes.Buffer
	if err := debugAssets().page.ExecuteTemplate(&b, name, newDebugPageData(now, filter)); err != nil {
		panic(err) // there is nothing in it that could fail
	}
	return b.Bytes()
}

func newDebugPageData(now *debugState, filter string) *debugPageData {
	v := newDebugView(now, filter)
	a := debugAssets()
	host, _ := os.Hostname()
	p := &debugPageData{
		debugView: v, Chart: newDebugChart(now), Style: a.style, Script: a.script, Refresh: 2,
		Program: printable(filepath.Base(os.Args[0]), 60), Host: printable(host, 60), PID: os.Getpid(),
		Matched: v.Tree.Guards, Released: now.atStop - now.guards,
	}
	p.Rows = rows(v.Tree)
	held := count(now.guards, "guard") + " in " + count(v.Scopes, "scope")
	hold := held + " hold it up."
	if now.guards == 1 {
		hold = held + " holds it up."
	}
	rung := graceful.Serving
	if now.status != nil {
		rung = now.status.Rung
	}
	p.Where = "Scope " + v.State
	if now.status != nil {
		p.Where = "Rung " + stepOf(rung).title() + " · " + v.State
	}
	switch cause := v.Cause; {
	case now.cause == ctxshutdown.ErrShutdown:
		p.Why = "a call of Shutdown"
	case now.cause == ctxshutdown.ErrForced:
		p.Why = "a call of Force"
	case cause != "":
		p.Why = cause
	case v.Ladder != nil:
		p.Why = v.Ladder.Cause
	}
	forced := now.forced || slices.ContainsFunc(now.marks, func(m debugMark) bool { return m.step == stepHard })
	var took, since int64 // from the first mark to the last, to now
	if n := len(now.marks); n > 0 {
		took, since = age(now.marks[n-1].at, now.marks[0].at), age(now.at, now.marks[0].at)
	}
	switch {
	case now.state == ctxshutdown.Complete && forced:
		p.Tone, p.Headline, p.Sentence = "duck", "Drained after force", "Work was cancelled, and then every guard was released."
	case now.state == ctxshutdown.Complete:
		p.Tone, p.Headline, p.Sentence = "done", "Drained", "Every guard was released."
	case rung == graceful.Exit:
		p.Tone, p.Headline, p.Sentence = "hard", "Given up", held+" were never released."
		if now.guards == 1 {
			p.Sentence = held + " was never released."
		}
	case rung == graceful.Hard || now.forced:
		p.Tone, p.Headline, p.Sentence = "hard", "Forced", "Work is cancelled. "+hold
	case now.state == ctxshutdown.ShuttingDown:
		p.Tone, p.Headline, p.Sentence = "soft", "Draining", "No new work. "+hold
	case rung == graceful.LameDuck:
		p.Tone, p.Headline, p.Sentence = "duck", "Lame duck", "Not ready, so that load balancers notice; still taking work: "+held+"."
	case rung == graceful.Soft:
		p.Tone, p.Headline, p.Sentence = "soft", "About to stop", "The process is stopping, this scope is not yet: "+held+"."
	default:
		p.Tone, p.Headline, p.Sentence = "serving", "Running", "Taking work: "+held+"."
	}
	switch {
	case now.state == ctxshutdown.Complete:
		p.NextLabel, p.NextText, p.Refresh = "Drained in", duration(took), 0
	case v.Ladder != nil && v.Ladder.Next != "":
		next := stepOf(rung + 1).title()
		p.NextLabel, p.NextLeft = next+" in", v.Ladder.Remaining
		if p.NextLeft == nil {
			p.NextLabel, p.NextText = next+" at the", "next signal"
		}
	case now.state == ctxshutdown.ShuttingDown:
		p.NextLabel, p.NextAge = "Stopping for", &since
	default:
		p.NextLabel, p.NextText = "Guards held", thousands(now.guards)
		p.Refresh = 5
	}
	p.Key = p.Headline + p.NextLabel
	p.Say = p.Headline + ". " + p.Sentence
	if p.NextLeft != nil {
		p.Say += " " + p.NextLabel + " " + duration(*p.NextLeft/1000*1000) + "."
	}
	p.Steps = debugSteps(now, v, rung)
	return p
}

func rows(n *debugNode) int {
	sum := len(n.Children)
	for _, kid := range n.Children {
		sum += rows(kid)
	}
	return sum
}

// debugSteps are all steps, with where and when on them.
func debugSteps(now *debugState, v *debugView, rung graceful.Rung) (steps []debugStepView) {
	when := func(step debugStep) string {
		i := slices.IndexFunc(now.marks, func(m debugMark) bool { return m.step == step })
		switch {
		case i < 0:
			return ""
		case i == 0:
			return now.marks[0].at.UTC().Format("15:04:05 UTC")
		}
		return "+" + duration(age(now.marks[i].at, now.marks[0].at))
	}
	add := func(step debugStep, title, note string, current, passed bool) {
		s := debugStepView{Title: title, Note: note, When: when(step), State: "todo"}
		switch {
		case current:
			s.State = "current"
		case passed:
			s.State = "done"
		}
		if passed && s.When == "" && step != stepServing {
			s.State, s.When = "skipped", "not needed"
			if slices.ContainsFunc(now.marks, func(m debugMark) bool { return m.step > step && m.step < stepDone }) {
				s.When = "–" // skipped, or nobody looked
			}
		}
		steps = append(steps, s)
	}
	complete, running := now.state == ctxshutdown.Complete, now.state == ctxshutdown.Running
	if now.status == nil {
		add(stepServing, "Running", "taking work", running, !running)
		add(stepSoft, "Shutting down", "no new work", !running && !complete && !now.forced, now.forced || complete)
		if now.forced {
			add(stepHard, "Forced", "work is cancelled", !complete, complete)
		}
		add(stepDone, "Complete", "nothing held", complete, false)
		return steps
	}
	notes := [...]string{"ready, taking work", "not ready, taking work", "no new work", "work is cancelled", "given up"}
	for r := graceful.Serving; r <= graceful.Exit; r++ {
		step := stepOf(r)
		if r == graceful.Exit && complete {
			add(stepDone, "Drained", "nothing held", true, false)
			break
		}
		add(step, step.title(), notes[r], r == rung && !complete, r < rung || complete)
		if s := &steps[len(steps)-1]; r == rung+1 && v.Ladder.Next != "" {
			if s.Left = v.Ladder.Remaining; s.Left == nil {
				s.When = "at the next signal"
			}
		}
	}
	return steps
}

// Clock is when this was seen.
func (p *debugPageData) Clock() string { return p.Time.Format("15:04:05") + " UTC" }

// Title is what a tab has room for.
func (p *debugPageData) Title() string {
	title := p.Headline
	if p.Guards > 0 {
		title += " · " + strconv.Itoa(p.Guards)
	}
	if p.Scope != "" {
		title += " · " + p.Scope
	}
	return title
}
