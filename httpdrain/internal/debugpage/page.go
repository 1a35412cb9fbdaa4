package debugpage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

//go:embed page.html page.css page.js
var files embed.FS

type assets struct {
	page   *template.Template
	style  template.CSS
	script template.JS
	policy string
}

// loadAssets reads the assets on first use. The Content-Security-Policy permits the page's style
// and script by their hashes, so a browser does not run a script that is hidden in the name of a
// scope.
var loadAssets = sync.OnceValue(func() assets {
	read := func(name string) string {
		b, err := files.ReadFile(name)
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
	return assets{
		page: template.Must(template.New("page").Funcs(template.FuncMap{
			"duration": duration, "count": count, "thousands": thousands,
		}).Parse(read("page.html"))),
		style: template.CSS(style), script: template.JS(script),
		policy: "default-src 'none'; script-src " + hash(script) + "; style-src " + hash(style) +
			"; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'" +
			"; require-trusted-types-for 'script'; trusted-types swansong",
	}
})

// A page is the data of the HTML template: a view, with the words and colors to show it.
type page struct {
	*view
	Tone                string // color of the page: serving, duck, soft, hard, done
	Where               string // phase of the process and state of the scope
	Headline, Sentence  string
	Why                 string // cause of the stop
	Announcement        string // what a screen reader says when the field Key has changed
	Key                 string
	NextLabel, NextText string
	NextLeft            *int64 // milliseconds until the next phase; the browser counts them down
	NextAge             *int64 // milliseconds since the stop; the browser counts them up
	Released            int    // number of guards released since the stop
	Steps               []stepView
	Chart               chart
	Rows, Matched       int
	IsCondensed         bool   // the list of blockers does not have every leaf of the tree
	Work                string // the summary, without the oldest request if the page lists all requests
	Program, Host       string
	PID                 int
	Style               template.CSS
	Script              template.JS
}

// renderPage renders the whole page. renderUpdate renders the parts of the page that change.
func renderPage(now *snapshot, filter string) []byte   { return execute("page", now, filter) }
func renderUpdate(now *snapshot, filter string) []byte { return execute("live", now, filter) }

func execute(name string, now *snapshot, filter string) []byte {
	var b bytes.Buffer
	if err := loadAssets().page.ExecuteTemplate(&b, name, newPage(now, filter)); err != nil {
		panic(err) // the template has a mistake, which the tests would find
	}
	return b.Bytes()
}

func newPage(now *snapshot, filter string) *page {
	v := newView(now, filter)
	a := loadAssets()
	host, _ := os.Hostname()
	p := &page{
		view: v, Chart: newChart(now), Style: a.style, Script: a.script,
		Program: printable(filepath.Base(os.Args[0]), 60), Host: printable(host, 60), PID: os.Getpid(),
		Rows: countRows(v.Tree), Matched: v.Tree.Guards, Released: now.maxGuards - now.guards,
	}
	p.Work = v.Summary
	if len(now.requests) > 1 {
		oldest := now.requests[0]
		p.Work = strings.TrimSuffix(p.Work, fmt.Sprintf(", oldest %d s: %s", (oldest.Age+time.Second-1)/time.Second, v.Requests[0].Request))
	}
	p.IsCondensed = countLeaves(v.Tree) > len(v.Blockers)
	phase := graceful.Serving
	p.Where = "Scope " + v.State
	if now.status != nil {
		phase = now.status.Phase
		p.Where = "Phase " + stepOf(phase).title() + " · " + v.State
	}
	p.Why = p.causeText(now)
	p.setHeadline(now, phase)
	p.setNext(now, phase)
	p.Key = p.Headline + p.NextLabel
	p.Announcement = p.Headline + ". " + p.Sentence
	if p.NextLeft != nil {
		p.Announcement += " " + p.NextLabel + " " + duration(*p.NextLeft/1000*1000) + "."
	}
	p.Steps = stepViews(now, v, phase)
	return p
}

// causeText says why the scope or its process is stopping.
func (p *page) causeText(now *snapshot) string {
	switch {
	case now.cause == ctxshutdown.ErrShutdown:
		return "a call of Shutdown"
	case now.cause == ctxshutdown.ErrForced:
		return "a call of Force"
	case p.Cause != "":
		return p.Cause
	case p.Phase != nil:
		return p.Phase.Cause
	}
	return ""
}

// setHeadline sets the color and the texts that describe the state.
func (p *page) setHeadline(now *snapshot, phase graceful.Phase) {
	held := count(now.guards, "guard") + " in " + count(p.Scopes, "scope")
	blocking, neverReleased := held+" delay the shutdown.", held+" were never released."
	if now.guards == 1 {
		blocking, neverReleased = held+" delays the shutdown.", held+" was never released."
	}
	set := func(tone, headline, sentence string) { p.Tone, p.Headline, p.Sentence = tone, headline, sentence }
	switch {
	case now.state == ctxshutdown.Complete && now.wasForced():
		set("duck", "Drained after force", "Work was cancelled, and then every guard was released.")
	case now.state == ctxshutdown.Complete:
		set("done", "Drained", "Every guard was released.")
	case phase == graceful.Exit:
		set("hard", "Given up", neverReleased)
	case phase == graceful.Hard || now.forced:
		set("hard", "Forced", "Work is cancelled. "+blocking)
	case now.state == ctxshutdown.ShuttingDown:
		set("soft", "Draining", "No new work. "+blocking)
	case phase == graceful.LameDuck:
		set("duck", "Lame duck", "Not ready, so that load balancers notice; still accepting work: "+held+".")
	case phase == graceful.Soft:
		set("soft", "About to stop", "The process is stopping, this scope is not yet: "+held+".")
	default:
		set("serving", "Running", "Accepting work.")
	}
}

// setNext sets the label and the value of the page's counter: the time until the next phase, the
// time since the stop, how long the drain took, or the number of guards held.
func (p *page) setNext(now *snapshot, phase graceful.Phase) {
	// Milliseconds from the first step of the shutdown to the last one, and to the snapshot.
	var took, sinceStop int64
	if n := len(now.marks); n > 0 {
		took, sinceStop = millisSince(now.marks[n-1].at, now.marks[0].at), millisSince(now.at, now.marks[0].at)
	}
	switch {
	case now.state == ctxshutdown.Complete:
		p.NextLabel, p.NextText = "Drained in", duration(took)
	case p.Phase != nil && p.Phase.Next != "":
		next := stepOf(phase + 1).title()
		p.NextLabel, p.NextLeft = next+" in", p.Phase.Remaining
		if p.NextLeft == nil {
			p.NextLabel, p.NextText = next+" at the", "next signal"
		}
	case now.state == ctxshutdown.ShuttingDown:
		p.NextLabel, p.NextAge = "Stopping for", &sinceStop
	default:
		p.NextLabel, p.NextText = "Guards held", thousands(now.guards)
	}
}

func countRows(n *node) int {
	sum := len(n.Children)
	for _, child := range n.Children {
		sum += countRows(child)
	}
	return sum
}

// countLeaves returns the number of rows without children that hold guards, including those that
// are not sent.
func countLeaves(n *node) (sum int) {
	for _, child := range n.Children {
		sum += countLeaves(child)
	}
	if n.Hidden != nil {
		sum += n.Hidden.Rows
	}
	if len(n.Children) == 0 && n.Guards > 0 {
		sum++
	}
	return sum
}

// Clock returns the time of the snapshot.
func (p *page) Clock() string { return p.Time.Format("15:04:05") + " UTC" }

// Title returns a title that is short enough for a browser tab.
func (p *page) Title() string {
	title := p.Headline
	if p.Guards > 0 {
		title += " · " + strconv.Itoa(p.Guards)
	}
	if p.Scope != "" {
		title += " · " + p.Scope
	}
	return title
}
