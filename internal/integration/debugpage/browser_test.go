package debugpage

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// timeout is the time limit of a test.
const timeout = 60 * time.Second

// chrome is started by the first test that needs it.
var chrome struct {
	sync.Once
	*browser
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if chrome.browser != nil {
		chrome.close()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A browser is a headless Chromium, controlled by the DevTools protocol
// (https://chromedevtools.github.io/devtools-protocol/). Each message is JSON and ends with a zero
// byte.
type browser struct {
	cmd  *exec.Cmd
	dir  string
	out  *os.File
	done chan struct{}

	mu    sync.Mutex
	id    int
	calls map[int]chan reply
	pages map[string]*page // pages by the identifier of their DevTools session
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

func start() (*browser, error) {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		return nil, errors.New("chromium not found: apt-get install chromium")
	}
	dir, err := os.MkdirTemp("", "debugpage-")
	if err != nil {
		return nil, err
	}
	theirIn, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &browser{dir: dir, out: out, done: make(chan struct{}), calls: map[int]chan reply{}, pages: map[string]*page{}}
	b.cmd = exec.Command(path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--hide-scrollbars", "--force-color-profile=srgb", "--user-data-dir="+dir, "about:blank")
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	theirIn.Close()
	theirOut.Close()
	go b.read(in)
	return b, nil
}

func (b *browser) close() {
	b.call(context.Background(), "", "Browser.close", nil, nil)
	b.out.Close()
	<-b.done
	b.cmd.Wait()
	os.RemoveAll(b.dir)
}

func (b *browser) read(in *os.File) {
	defer close(b.done)
	defer in.Close()
	for r := bufio.NewReaderSize(in, 1<<20); ; {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID        int
			SessionID string
			Method    string
			Params    json.RawMessage
			reply
		}
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		call, page := b.calls[m.ID], b.pages[m.SessionID]
		delete(b.calls, m.ID)
		b.mu.Unlock()
		switch {
		case call != nil:
			call <- m.reply
		case page != nil && m.Method != "":
			page.event(m.Method, m.Params)
		}
	}
}

func (b *browser) call(ctx context.Context, session, method string, params, result any) error {
	c := make(chan reply, 1)
	b.mu.Lock()
	b.id++
	id := b.id
	b.calls[id] = c
	m := map[string]any{"id": id, "method": method}
	if session != "" {
		m["sessionId"] = session
	}
	if params != nil {
		m["params"] = params
	}
	line, err := json.Marshal(m)
	if err == nil {
		_, err = b.out.Write(append(line, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case r := <-c:
		if r.Error != nil {
			return fmt.Errorf("%s: %s", method, r.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(r.Result, result)
	case <-b.done:
		return errors.New(method + ": the browser has exited")
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}

// A page is a tab with its own profile. At the end of its test it checks that the page sent
// requests to its own origin only, wrote nothing to the console, and violated no policy.
type page struct {
	*testing.T
	ctx     context.Context
	session string
	origin  string

	mu       sync.Mutex
	requests []string
	problems []string
	loads    int
	loaded   chan struct{} // closed when the page has loaded, and then replaced by a new channel
	expected func(problem string) bool
}

// needBrowser starts the browser. If no browser is installed, it skips the test or, in CI, fails
// it.
func needBrowser(t *testing.T) {
	t.Helper()
	chrome.Do(func() { chrome.browser, chrome.err = start() })
	if chrome.err != nil {
		if os.Getenv("CI") == "" {
			t.Skip("skipped: ", chrome.err)
		}
		t.Fatal(chrome.err)
	}
}

func newPage(t *testing.T, origin string) *page {
	t.Helper()
	needBrowser(t)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	p := &page{T: t, ctx: ctx, origin: origin, loaded: make(chan struct{}), expected: func(string) bool { return false }}
	b := chrome.browser
	var profile struct{ BrowserContextID string }
	var target struct{ TargetID string }
	var session struct{ SessionID string }
	p.must(b.call(ctx, "", "Target.createBrowserContext", nil, &profile))
	p.must(b.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": profile.BrowserContextID}, &target))
	p.must(b.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session))
	p.session = session.SessionID
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	t.Cleanup(func() {
		p.check()
		b.call(context.Background(), "", "Target.disposeBrowserContext", map[string]any{"browserContextId": profile.BrowserContextID}, nil)
	})
	for _, domain := range []string{"Page", "Runtime", "Network", "Log", "Audits"} {
		p.call(domain+".enable", nil, nil)
	}
	p.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `
		window.violations = []; window.shifts = [];
		addEventListener("securitypolicyviolation", e => violations.push(e.violatedDirective + " " + e.blockedURI));
		addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(() => document.documentElement.dataset.drawn = performance.now())));
		new PerformanceObserver(l => shifts.push(...l.getEntries())).observe({type: "layout-shift", buffered: true});
	`}, nil)
	p.size(1280, 900)
	return p
}

func (p *page) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *page) call(method string, params, result any) {
	p.Helper()
	p.must(chrome.browser.call(p.ctx, p.session, method, params, result))
}

func (p *page) event(method string, params json.RawMessage) {
	var e struct {
		Type    string
		Request struct{ URL string }
		Args    []struct {
			Value       any
			Description string
		}
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Issue struct{ Code string }
	}
	json.Unmarshal(params, &e)
	p.mu.Lock()
	defer p.mu.Unlock()
	problem := ""
	switch method {
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	case "Runtime.consoleAPICalled":
		problem = fmt.Sprint("console.", e.Type, e.Args)
	case "Runtime.exceptionThrown":
		problem = "exception: " + e.ExceptionDetails.Text + " " + e.ExceptionDetails.Exception.Description
	case "Log.entryAdded":
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			problem = e.Entry.Level + ": " + e.Entry.Text + " " + e.Entry.URL
		}
	case "Audits.issueAdded":
		problem = "issue: " + e.Issue.Code + " " + string(params)
	case "Page.javascriptDialogOpening":
		problem = "a dialog: " + string(params)
	case "Page.loadEventFired":
		p.loads++
		close(p.loaded)
		p.loaded = make(chan struct{})
	}
	if problem != "" && !p.expected(problem) {
		p.problems = append(p.problems, problem)
	}
}

func (p *page) check() {
	if p.Failed() {
		return
	}
	if v := fmt.Sprint(p.eval(`window.violations`)); v != "[]" {
		p.Error("the policy was violated: ", v)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.Error(problem)
	}
	for _, url := range p.requests {
		if !strings.HasPrefix(url, p.origin+"/") && !strings.HasPrefix(url, "data:") {
			p.Error("the page sent a request to another origin: ", url)
		}
	}
}

// open loads the page and waits until its stream of events is connected.
func (p *page) open(query string) {
	p.Helper()
	p.load(query)
	p.waitUntil(`document.documentElement.dataset.link === "live" || document.documentElement.dataset.link === "over"`)
}

func (p *page) load(query string) {
	p.Helper()
	p.mu.Lock()
	loaded := p.loaded
	p.mu.Unlock()
	p.call("Page.navigate", map[string]any{"url": p.origin + "/debug/shutdown" + query}, nil)
	p.wait(loaded)
}

func (p *page) wait(c <-chan struct{}) {
	p.Helper()
	select {
	case <-c:
	case <-p.ctx.Done():
		p.Fatal("the page did not load")
	}
}

// eval returns the value of a JavaScript expression. If the value is a promise, eval waits for it.
func (p *page) eval(expression string) any {
	p.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	p.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		p.Fatalf("%s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	return r.Result.Value
}

func (p *page) text(selector string) string {
	p.Helper()
	q, _ := json.Marshal(selector)
	s, _ := p.eval(`[...document.querySelectorAll(` + string(q) + `)].map(e => e.textContent.trim().replace(/\s+/g, " ")).join(" | ")`).(string)
	return s
}

// waitUntil waits until the JavaScript expression condition is true.
func (p *page) waitUntil(condition string) {
	p.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	err := chrome.browser.call(p.ctx, p.session, "Runtime.evaluate", map[string]any{"awaitPromise": true, "returnByValue": true, "expression": `
		new Promise(resolve => {
			const look = () => { if (` + condition + `) { watcher.disconnect(); resolve(true) } };
			const watcher = new MutationObserver(look);
			watcher.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
			look();
		})`}, &r)
	if err != nil {
		p.ctx = context.Background()
		p.Fatalf("%s: %v; the page says:\n%v", condition, err, p.eval(`document.body.innerText`))
	}
	if r.ExceptionDetails != nil {
		p.Fatalf("%s: %s", condition, r.ExceptionDetails.Exception.Description)
	}
}

// waitForText waits until an element contains the text.
func (p *page) waitForText(selector, text string) {
	p.Helper()
	s, _ := json.Marshal(selector)
	t, _ := json.Marshal(text)
	p.waitUntil(`[...document.querySelectorAll(` + string(s) + `)].some(e => e.textContent.replace(/\s+/g, " ").includes(` + string(t) + `))`)
}

func (p *page) size(width, height int) {
	p.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

func (p *page) scheme(name string) {
	p.Helper()
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": name}}}, nil)
}

// key sends the events of a key being pressed.
func (p *page) key(name string) {
	p.Helper()
	code := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27}[name]
	down := map[string]any{"type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": code}
	if name == "Enter" {
		down["text"] = "\r"
	}
	p.call("Input.dispatchKeyEvent", down, nil)
	p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": name, "code": name, "windowsVirtualKeyCode": code}, nil)
}

// shot writes a screenshot of the whole page, as described in the documentation of the package.
func (p *page) shot(name string) {
	p.Helper()
	dir := os.Getenv("SWANSONG_SHOTS")
	if dir == "" {
		return
	}
	for _, size := range []struct {
		name          string
		width, height int
	}{{"desktop", 1280, 900}, {"phone", 390, 844}} {
		for _, scheme := range []string{"light", "dark"} {
			p.size(size.width, size.height)
			p.scheme(scheme)
			var r struct{ Data string }
			p.call("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
			png, err := base64.StdEncoding.DecodeString(r.Data)
			p.must(err)
			p.must(os.WriteFile(filepath.Join(dir, name+"-"+size.name+"-"+scheme+".png"), png, 0o644))
		}
	}
	p.size(1280, 900)
	p.scheme("light")
}
