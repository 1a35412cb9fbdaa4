package debugpage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// serve serves the page of s until the test ends.
func serve(t *testing.T, s *ctxshutdown.Swansong) (origin string) {
	mux := http.NewServeMux()
	mux.Handle("GET /debug/shutdown", httpdrain.Debug(s, httpdrain.LocalOnly()))
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

func scope(t *testing.T, opts ...ctxshutdown.Option) *ctxshutdown.Swansong {
	s := ctxshutdown.New(context.Background(), opts...)
	t.Cleanup(func() { s.Shutdown() })
	return s
}

func child(s *ctxshutdown.Swansong, name string) *ctxshutdown.Swansong {
	c, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName(name))
	return c
}

// hold acquires n guards in a new child of s.
func hold(s *ctxshutdown.Swansong, name string, n int) (release func()) {
	c := child(s, name)
	guards := make([]*ctxshutdown.Guard, n)
	for i := range guards {
		guards[i] = c.Guard()
	}
	return func() {
		for _, g := range guards {
			g.Release()
		}
	}
}

// The page follows the shutdown of a process, with real signals, phases and guards.
func TestPage_ShowsPhasesAndGuardsDuringDrain(t *testing.T) {
	needBrowser(t) // called before the test starts the process, because t.Skip after that would leave the process running
	// The phases last longer than the test, and are short enough for the page to count them down in
	// seconds.
	const phase = 59 * time.Second
	begin, finish, end := make(chan *ctxshutdown.Swansong), make(chan struct{}), make(chan error, 1)
	go func() {
		end <- graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
			begin <- s
			<-finish
			return nil
		}, graceful.WithSoft(phase), graceful.WithHard(phase))
	}()
	scope := <-begin
	signal := func() {
		self, _ := os.FindProcess(os.Getpid())
		if err := self.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	root, _ := ctxshutdown.WithCancel(scope, ctxshutdown.WithName("shop"), ctxshutdown.WithTrace())
	http := child(root, "http")
	conn42, conn7 := hold(http, "conn-42", 9), hold(http, "conn-7", 2)
	flush := hold(root, "flush", 1)

	p := newPage(t, serve(t, scope))
	p.open("")
	p.waitForText("#state", "Running")
	p.eval(`window.same = true`) // deleted if the page is loaded again, which the test must notice
	orders := hold(root, "orders", 3)
	p.waitForText("#tree", "orders")
	p.waitForText("[aria-current=step]", "Serving")
	p.shot("running")
	place := p.eval(`document.getElementById("scopes").offsetTop`)

	signal()
	p.waitForText("#state", "Draining")
	p.waitForText("[aria-current=step]", "Soft")
	p.waitForText(".sentence", "16 guards in 5 scopes delay the shutdown.")
	p.waitForText("#said", "Draining.")
	p.waitForText(".next", "Hard in")
	p.waitUntil(`document.querySelector(".big").textContent.match(/\d s$/)`)
	p.eval(`window.first = +parseFloat(document.querySelector(".big").textContent)`)
	p.waitUntil(`parseFloat(document.querySelector(".big").textContent) < first`) // the time on the page until the next phase has decreased
	p.waitForText(".blockers", "conn-42")
	p.waitForText("#tree", "page_test.go:")
	if got := p.eval(`document.getElementById("scopes").offsetTop`); got != place {
		t.Errorf("the stop has moved the scopes from %v to %v", place, got)
	}

	orders()
	p.waitForText("#tree", "drained")
	conn7()
	p.waitForText(".sentence", "11 guards in 3 scopes")
	p.waitForText(".progress", "5 of 16 released")
	p.shot("soft")

	signal()
	p.waitForText("#state", "Forced")
	p.waitForText("[aria-current=step]", "Hard")
	p.waitForText(".next", "Exit in")
	p.shot("hard")

	flush()
	conn42()
	close(finish)
	p.waitForText("#state", "Drained after force")
	p.waitForText("#link", "Final")
	if p.eval(`window.same`) != true {
		t.Error("the page was reloaded")
	}
	p.shot("drained")
	<-end
}

func TestPage_ShowsTenThousandScopes(t *testing.T) {
	s := scope(t)
	http := child(s, "http")
	for i := range 10_000 {
		hold(http, fmt.Sprintf("conn-%d", i), 1+i%7/6)
	}
	last := hold(s, "the-one-that-matters", 1)
	p := newPage(t, serve(t, s))
	p.open("")
	p.waitForText("#tree", "more row")
	s.Shutdown()
	p.waitForText("#state", "Draining")
	p.waitForText(".blockers", "http in 10,000 scopes") // the page shows one blocker for all 10,000 scopes
	p.waitForText(".blockers", "the-one-that-matters")
	p.shot("many")
	nodes := `document.querySelectorAll("*").length`
	if n := p.eval(nodes).(float64); n > 3000 {
		t.Errorf("the page has %v elements", n)
	}
	p.eval(`document.getElementById("q").focus()`)
	p.call("Input.insertText", map[string]any{"text": "conn-77"}, nil)
	p.waitForText(".sum", "match")
	p.waitForText("#tree", "conn-7777")
	if got, want := p.eval(`location.search`), "?q=conn-77"; got != want {
		t.Errorf("the address has %v, want %v", got, want)
	}
	if got := p.eval(`document.activeElement.id`); got != "q" {
		t.Errorf("typing has moved the focus to %v", got)
	}
	p.shot("filter")
	last()
	p.waitForText(".sentence", "11,428 guards in 10,000 scopes")
	if n := p.eval(nodes).(float64); n > 3000 {
		t.Errorf("the page has %v elements", n)
	}
}

// shown returns name in the form in which the name of a scope is displayed, with escaped quotes.
func shown(name string) string { return strings.ReplaceAll(name, `"`, `\"`) }

var hostile = []string{
	`<script>document.title="owned"</script>`, `<img src=x onerror="document.title='owned'">`, `"><svg onload=alert(1)>`,
	`</style><script>alert(1)</script>`, `quotes " ' and \ &amp; &lt;`, "two\nlines\r\ndata: x", "שלום עולם", "\u202eright to left",
	`javascript:alert(1)`, `{{.}}`, "ünïcødé 界 🚀", strings.Repeat("long", 60), "a long name of many words",
}

// Names that contain HTML are shown as text.
func TestPage_ShowsNamesWithHTMLAsText(t *testing.T) {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName(`<b onclick=alert(1)>root`))
	var release []func()
	for i, name := range hostile {
		release = append(release, hold(s, name, 30-i))
	}
	p := newPage(t, serve(t, s))
	p.open("")
	late := hold(s, "late", 1)
	p.waitForText("#tree", "late") // an event has updated the page
	for _, name := range []string{hostile[0], hostile[1], hostile[2], hostile[3], "שלום עולם", `\u202eright to left`, `two\nlines\r\ndata: x`, "{{.}}"} {
		if got := p.text("#tree"); !strings.Contains(got, shown(name)) {
			t.Errorf("%q is not shown as text:\n%s", name, got)
		}
	}
	s.ShutdownCause(errors.New("<script>alert(1)</script>\u202e\n\nevent: end"))
	p.waitForText(".cause", `<script>alert(1)</script>\u202e\n\nevent: end`)
	want := map[string]any{"scripts": 1.0, "images": 0.0, "handlers": 0.0}
	got := p.eval(`({scripts: document.scripts.length, images: document.images.length,
		handlers: [...document.querySelectorAll("*")].filter(e => [...e.attributes].some(a => a.name.startsWith("on"))).length})`)
	testkit.Equal(t, "elements", got, any(want))
	if title := p.eval(`document.title`).(string); !strings.HasPrefix(title, "Draining") {
		t.Errorf("title %q", title)
	}
	p.shot("hostile")
	for _, f := range append(release, late) {
		f()
	}
	p.waitForText("#state", "Drained")
}

// Every control of the page can be reached and used by keyboard, the focused element is visible,
// and updates of the page do not move the focus.
func TestPage_CanBeUsedByKeyboard(t *testing.T) {
	s := scope(t)
	for _, group := range []string{"http", "jobs"} {
		c := child(s, group)
		hold(c, "a", 2)
		hold(c, "b", 1)
	}
	p := newPage(t, serve(t, s))
	p.open("")
	focus := func() string {
		return p.eval(`(() => { const e = document.activeElement; return e.id || (e.querySelector("bdi") || e).textContent.trim() })()`).(string)
	}
	var reached []string
	for range 8 {
		p.key("Tab")
		reached = append(reached, focus())
		if outline := p.eval(`(() => { const e = getComputedStyle(document.activeElement);
			return e.outlineStyle !== "none" && parseFloat(e.outlineWidth) >= 2 })()`); outline != true {
			t.Errorf("the focus on %s is not visible", focus())
		}
		if len(reached) > 1 && reached[len(reached)-1] == "jobs" {
			break
		}
	}
	want := []string{"Skip to the scopes", "pause", "JSON", "q", "Filter", "http", "jobs"}
	if diff := cmp.Diff(want, reached); diff != "" {
		t.Fatalf("Tab goes to (-want +got):\n%s", diff)
	}
	p.key("Enter")
	p.waitUntil(`!document.activeElement.parentNode.open`)
	hold(child(s, "more"), "c", 9) // the page shows the new scope above the rows that it has already
	p.waitForText("#tree", "more")
	if got := focus(); got != "jobs" {
		t.Errorf("an update moved the focus to %s", got)
	}
	if p.eval(`document.activeElement.parentNode.open`) != false {
		t.Error("an update opened what was closed")
	}
	p.shot("keyboard")
	p.key("Enter")
	p.waitUntil(`document.activeElement.parentNode.open`)

	p.eval(`document.getElementById("pause").focus()`)
	p.key("Enter")
	p.waitForText("#link", "Paused")
	p.waitForText("#pause", "Resume")
	hold(s, "unseen", 1)
	p.key("Enter")
	p.waitForText("#link", "Live")
	p.waitForText("#tree", "unseen")
}

// In both color schemes and at all widths, text has enough contrast, fits the window, and does not
// jump. The labels of the chart do not overlap.
func TestPage_TextIsLegibleAtAllWidths(t *testing.T) {
	for _, state := range []string{"serving", "draining", "forced", "drained"} {
		t.Run(state, func(t *testing.T) {
			s := scope(t, ctxshutdown.WithName("shop"), ctxshutdown.WithTrace())
			a := hold(child(s, "http"), "conn-42", 3)
			b := hold(s, "flush", 1)
			defer a()
			origin := serve(t, s)
			switch state {
			case "draining":
				s.Shutdown()
				b()
			case "forced":
				s.Force(nil)
			case "drained":
				s.Shutdown()
				a()
				b()
			}
			p := newPage(t, origin)
			for _, width := range []int{1280, 390, 320} {
				for _, scheme := range []string{"light", "dark"} {
					p.size(width, 800)
					p.scheme(scheme)
					p.load("")
					p.waitUntil(`document.documentElement.dataset.link && document.documentElement.dataset.drawn`)
					if got := p.eval(contrast).([]any); len(got) > 0 {
						t.Errorf("%d, %s: too little contrast: %v", width, scheme, got)
					}
					if got := p.eval(`document.documentElement.scrollWidth - innerWidth`).(float64); got > 0 {
						t.Errorf("%d: the page is %v pixels too wide", width, got)
					}
					if got := p.eval(overlaps).([]any); len(got) > 0 {
						t.Errorf("%d: labels of the chart overlap: %v", width, got)
					}
					if got := p.eval(jumps).([]any); len(got) > 0 {
						t.Errorf("%d, %s: the layout jumps: %v", width, scheme, got)
					}
				}
			}
		})
	}
}

// overlaps returns pairs of labels in the chart that overlap.
const overlaps = `(() => {
	const labels = [...document.querySelectorAll(".chart text")].filter(e => e.textContent.trim());
	const over = (a, b) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
	return labels.flatMap((a, i) => labels.slice(i + 1).filter(b => over(a.getBoundingClientRect(), b.getBoundingClientRect()))
		.map(b => a.textContent + " and " + b.textContent));
})()`

// jumps returns layout shifts that a reader would notice, by the limit of Core Web Vitals. It
// ignores shifts before the page was completely drawn once, because a busy machine draws it in
// steps.
const jumps = `shifts.filter(e => e.startTime > document.documentElement.dataset.drawn && e.value > .1)
	.flatMap(e => e.sources.map(s => (s.node?.outerHTML ?? "").slice(0, 80) + JSON.stringify([s.previousRect, s.currentRect])))`

// contrast finds the text whose contrast is less than WCAG 2 level AA requires.
const contrast = `(() => {
	const parse = c => c.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126*f(r) + .7152*f(g) + .0722*f(b) };
	const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c } return [255, 255, 255] };
	const bad = [];
	for (const e of document.querySelectorAll("body *:not(script)")) {
		const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
		if (!own || e.closest(".unseen, .skip, desc")) continue;
		const style = getComputedStyle(e), svg = e instanceof SVGElement;
		const a = light(parse(svg ? style.fill : style.color)), b = light(behind(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) bad.push(e.textContent.trim() + " " + ratio.toFixed(2));
	}
	return bad;
})()`

// Without JavaScript, the page is complete and filters with a form. It does not reload itself, so
// that the window still shows the last state when the process has ended.
func TestPage_WorksWithoutJavaScript(t *testing.T) {
	s := scope(t)
	release := hold(s, "one", 1)
	defer release()
	p := newPage(t, serve(t, s))
	p.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	s.Shutdown()
	p.load("?q=o")
	hold(s, "two", 1)
	p.load("?q=o")
	p.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
	for selector, want := range map[string]string{"#state": "Draining", "#tree": "two", "#link": "Snapshot", ".sum": "2 guards of 2 in 2 scopes match"} {
		if got := p.text(selector); !strings.Contains(got, want) {
			t.Errorf("%s says %q, want %q", selector, got, want)
		}
	}
	if n := p.eval(`document.querySelectorAll("meta[http-equiv]").length`); n != 0.0 {
		t.Error("the page reloads itself")
	}
	if got := p.text("noscript a"); got != "Reload" {
		t.Errorf("the link to reload the page says %q", got)
	}
	p.shot("noscript")
}

// When the server is gone, the page says that the connection is lost.
func TestPage_ShowsLostConnectionWhenServerEnds(t *testing.T) {
	s := scope(t)
	release := hold(s, "one", 1)
	defer release()
	mux := http.NewServeMux()
	mux.Handle("GET /debug/shutdown", httpdrain.Debug(s, httpdrain.LocalOnly()))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	p := newPage(t, srv.URL)
	p.expected = func(problem string) bool { return strings.Contains(problem, "net::ERR_") }
	p.open("")
	s.Shutdown()
	p.waitForText("#state", "Draining")
	srv.Listener.Close()
	srv.CloseClientConnections()
	p.waitForText("#link", "Lost")
	p.shot("lost")
}
