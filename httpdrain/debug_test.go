package httpdrain_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"go.uber.org/goleak"
)

// A debugLadder is a process that goes down its ladder when the test says so.
type debugLadder struct {
	mu       sync.Mutex
	status   graceful.Status
	watchers map[int]func(graceful.Status)
	n        int
}

func (l *debugLadder) Status() graceful.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

func (l *debugLadder) Watch(f func(graceful.Status)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers == nil {
		l.watchers = map[int]func(graceful.Status){}
	}
	l.n++
	n := l.n
	l.watchers[n] = f
	f(l.status)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, n)
	}
}

func (l *debugLadder) watched() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.watchers)
}

// enter is the change to a rung that lasts for d, 0 for as long as it takes.
func (l *debugLadder) enter(r graceful.Rung, d time.Duration, change ...func(*graceful.Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Rung, l.status.Since, l.status.Until = r, time.Now(), time.Time{}
	if d > 0 {
		l.status.Until = l.status.Since.Add(d)
	}
	for _, f := range change {
		f(&l.status)
	}
	for _, f := range l.watchers {
		f(l.status)
	}
}

func debugChild(s *ctxshutdown.Swansong, name string) *ctxshutdown.Swansong {
	c, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName(name))
	return c
}

func debugGuards(s *ctxshutdown.Swansong, n int) (release func()) {
	var guards []*ctxshutdown.Guard
	for range n {
		guards = append(guards, s.Guard())
	}
	return func() {
		for _, g := range guards {
			g.Release()
		}
	}
}

// debugRequest comes from the machine itself.
func debugRequest(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "localhost:8080"
	return r
}

func debugGet(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, debugRequest("GET", target))
	return w
}

func debugState(t *testing.T, data string) (v struct {
	State    string
	Forced   bool
	Guards   int
	AtStop   int `json:"guards_at_stop"`
	Scopes   int
	Cause    string
	Filter   string
	Ladder   *struct{ Rung string }
	Blockers []struct {
		Path   string
		Guards int
		Scopes int
	}
	Tree     debugNode
	Timeline struct {
		Points []struct{ Guards int }
		Marks  []struct{ Step string }
	}
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%v in %q", err, data)
	}
	return v
}

type debugNode struct {
	Name, Path, Site, State string
	Guards, Scopes          int
	Children                []debugNode
	Hidden                  *struct{ Rows, Scopes, Guards int }
}

// The JSON of one night, step by step. UPDATE_GOLDEN=1 writes the files anew.
func TestDebug_JSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &debugLadder{}
		l.enter(graceful.Serving, 0)
		root := ctxshutdown.New(context.Background(), ctxshutdown.WithName("shop"), ctxshutdown.WithTrace())
		h := httpdrain.DebugOn(root, l)
		check := func(name string) {
			t.Helper()
			w := debugGet(h, "/debug/shutdown?format=json")
			var got bytes.Buffer
			body := regexp.MustCompile(`debug_test\.go:\d+`).ReplaceAll(w.Body.Bytes(), []byte("debug_test.go:0"))
			if err := json.Indent(&got, body, "", "  "); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("debug", "testdata", name+".json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				os.MkdirAll(filepath.Dir(path), 0o755)
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.ReplaceAll(string(want), "\r\n", "\n"), got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		check("1-idle")
		web := debugChild(root, "http")
		conn42 := debugGuards(debugChild(web, "conn-42"), 2)
		time.Sleep(1500 * time.Millisecond)
		conn7 := debugGuards(debugChild(web, "conn-7"), 1)
		flush := debugGuards(debugChild(root, "flush"), 3)
		time.Sleep(time.Second)
		check("2-running")
		cause := errors.New("signal: terminated")
		l.enter(graceful.LameDuck, 3*time.Second, func(s *graceful.Status) { s.Cause, s.Signals = cause, 1 })
		time.Sleep(time.Second)
		check("3-lame-duck")
		time.Sleep(2 * time.Second)
		l.enter(graceful.Soft, 10*time.Second)
		root.ShutdownCause(cause)
		synctest.Wait()
		conn7()
		flush()
		time.Sleep(4 * time.Second)
		l.enter(graceful.Soft, 12*time.Second, func(s *graceful.Status) {
			s.Since, s.Extended, s.Reason = s.Since.Add(-4*time.Second), 5*time.Second, "one more\nbatch"
		})
		check("4-draining")
		time.Sleep(12 * time.Second)
		l.enter(graceful.Hard, 0, func(s *graceful.Status) { s.Signals = 2 })
		root.Force(nil)
		synctest.Wait()
		check("5-forced")
		time.Sleep(time.Second)
		conn42()
		synctest.Wait()
		check("6-complete")
		root.Guard().Release()
	})
}

// Without a process, all there is are the states of the scope.
func TestDebug_WithoutLadder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := httpdrain.Debug(s, nil)
		release := debugGuards(s, 1)
		step := func(state, steps string) {
			t.Helper()
			v := debugState(t, debugGet(h, "/?format=json").Body.String())
			if v.State != state || v.Ladder != nil {
				t.Errorf("state %v, ladder %v; want %v and none", v.State, v.Ladder, state)
			}
			page := debugGet(h, "/").Body.String()
			var got []string
			for _, m := range regexp.MustCompile(`<li data-state="(\w+)"[^>]*>\s*<b>([\w ]+)</b>`).FindAllStringSubmatch(page, -1) {
				got = append(got, m[2]+" "+m[1])
			}
			if diff := cmp.Diff(steps, strings.Join(got, ", ")); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		}
		step("Running", "Running current, Shutting down todo, Complete todo")
		s.Shutdown()
		step("ShuttingDown", "Running done, Shutting down current, Complete todo")
		s.Force(nil)
		step("ShuttingDown", "Running done, Shutting down done, Forced current, Complete todo")
		release()
		step("Complete", "Running done, Shutting down done, Forced done, Complete current")
		late := s.Guard()
		step("ShuttingDown", "Running done, Shutting down done, Forced current, Complete todo")
		late.Release()
		step("Complete", "Running done, Shutting down done, Forced done, Complete current")
	})
}

// A process that is over has got to Exit, without having given up on anybody.
func TestDebug_OverIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &debugLadder{}
		s := ctxshutdown.New(context.Background())
		h := httpdrain.DebugOn(s, l)
		l.enter(graceful.Soft, time.Minute)
		s.Shutdown()
		l.enter(graceful.Exit, 0)
		page := debugGet(h, "/").Body.String()
		if !strings.Contains(page, `<h1 id="state">Drained</h1>`) || strings.Contains(page, "given up") {
			t.Errorf("what has drained is shown as given up on:\n%s", page)
		}
	})
}

// What nobody has watched is not recorded, except how much was held at the stop.
func TestDebug_Timeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := httpdrain.Debug(s)
		release := debugGuards(debugChild(s, "a"), 5)
		s.Shutdown()
		synctest.Wait() // for the callback
		release()
		synctest.Wait()
		time.Sleep(time.Hour)
		v := debugState(t, debugGet(h, "/?format=json").Body.String())
		if diff := cmp.Diff([]struct{ Guards int }{{5}, {0}}, v.Timeline.Points); diff != "" || v.AtStop != 5 {
			t.Errorf("%d at the stop; timeline (-want +got):\n%s", v.AtStop, diff)
		}
		if got := fmt.Sprint(v.Timeline.Marks); got != "[{Soft} {Complete}]" {
			t.Errorf("marks %v", got)
		}
	})
}

// The timeline is of bounded length, however long and busy the drain.
func TestDebug_TimelineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := httpdrain.Debug(s)
		var guards []*ctxshutdown.Guard
		for range 2000 {
			guards = append(guards, s.Guard())
		}
		s.Shutdown()
		var last string
		for _, g := range guards {
			time.Sleep(time.Second)
			last = debugGet(h, "/?format=json").Body.String()
			g.Release()
		}
		v := debugState(t, last)
		points := v.Timeline.Points
		if n := len(points); n < 100 || n > 240 || points[0].Guards != 2000 || points[n-1].Guards != 1 {
			t.Errorf("%d points, from %v to %v", n, points[0], points[n-1])
		}
	})
}

var debugHostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onfocus='alert(1)`, `</title></style><svg/onload=alert(1)>`,
	"two\nlines\r\nevent: end\ndata: complete", "\u202eright to left", "שלום", `{{.Guards}}`, "nul\x00 \xff", `&lt;b&gt;`,
}

// Whatever names, causes, filters and reasons say is text.
func TestDebug_Escaping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &debugLadder{}
		s := ctxshutdown.New(context.Background(), ctxshutdown.WithName(debugHostile[0]))
		h := httpdrain.DebugOn(s, l)
		for _, name := range debugHostile {
			defer debugGuards(debugChild(s, name), 1)()
		}
		all := strings.Join(debugHostile, " ")
		l.enter(graceful.Soft, time.Minute, func(st *graceful.Status) { st.Cause, st.Reason, st.Extended = errors.New(all), all, 1 })
		s.ShutdownCause(errors.New(all))
		query := "&q=" + strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", " ", "%20").Replace(debugHostile[1]) + "%0d%0aevent:end"
		for target, tags := range map[string]int{"/?": 1, "/?" + query: 1} {
			page := debugGet(h, target).Body.String()
			if n := strings.Count(strings.ToLower(page), "<script"); n != tags {
				t.Errorf("%s: %d script elements, want %d", target, n, tags)
			}
			// In the text of the page a name has no angle bracket, and in an attribute no quote that is its own.
			page = regexp.MustCompile(`(?s)<(script|style)>.*?</(script|style)>`).ReplaceAllString(page, "")
			for _, bad := range []string{"<img", "<svg/", "alert(1)>", "\u202e", "\x00", "\xff", "onfocus='"} {
				if strings.Contains(page, bad) {
					t.Errorf("%s: there is %q in the page", target, bad)
				}
			}
			if !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;") && target == "/?" {
				t.Errorf("%s: the name is not shown", target)
			}
		}
		for _, part := range []string{"", "&part=html"} {
			stream := debugStream(h, debugRequest("GET", "/?format=events"+part+query))
			event, data := stream.next(t)
			if event != "state" || strings.Contains(data, "\r") {
				t.Errorf("event %q: %q", event, data)
			}
			stream.leave()
			if rest, _ := io.ReadAll(stream.r); len(bytes.TrimSpace(rest)) > 0 {
				t.Errorf("a name has made up an event: %q", rest)
			}
		}
		if v := debugState(t, debugGet(h, "/?format=json").Body.String()); strings.ContainsAny(v.Cause, "\n\r\x00\u202e") {
			t.Errorf("cause %q", v.Cause)
		}
	})
}

// The policy allows the page's own style and script, by what is in them, and nothing else; there is nothing else.
func TestDebug_Policy(t *testing.T) {
	h := httpdrain.Debug(ctxshutdown.New(context.Background()))
	w := debugGet(h, "/debug/shutdown")
	page := w.Body.String()
	hash := func(tag string) string {
		m := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(page, -1)
		if len(m) != 1 {
			t.Fatalf("there are %d of <%s>", len(m), tag)
		}
		sum := sha256.Sum256([]byte(m[0][1]))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	want := http.Header{
		"Cache-Control":                {"no-store"},
		"Content-Length":               {fmt.Sprint(len(page))},
		"Content-Type":                 {"text/html; charset=utf-8"},
		"Cross-Origin-Resource-Policy": {"same-origin"},
		"Referrer-Policy":              {"no-referrer"},
		"Vary":                         {"Accept"},
		"X-Content-Type-Options":       {"nosniff"},
		"X-Frame-Options":              {"DENY"},
		"Content-Security-Policy": {"default-src 'none'; script-src " + hash("script") + "; style-src " + hash("style") +
			"; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'" +
			"; require-trusted-types-for 'script'; trusted-types swansong"},
	}
	if diff := cmp.Diff(want, w.Header()); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	for _, bad := range []string{` style=`, ` on\w+=`, `(src|href)="?(https?:)?//`, `@import`, `url\(["']?http`} {
		if m := regexp.MustCompile(`<[^>]*` + bad).FindString(page); m != "" {
			t.Errorf("the policy would not allow %q", m)
		}
	}
	for _, target := range []string{"/?format=json", "/?format=nonsense"} {
		if got := debugGet(h, target).Header(); got.Get("Content-Security-Policy") == "" || got.Get("Cache-Control") != "no-store" ||
			got.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: header %v", target, got)
		}
	}
}

func TestDebug_Methods(t *testing.T) {
	h := httpdrain.Debug(ctxshutdown.New(context.Background()))
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, debugRequest(method, "/"))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	for _, format := range []string{"html", "json", "events"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, debugRequest("HEAD", "/?format="+format))
		if w.Code != http.StatusOK || w.Body.Len() != 0 {
			t.Errorf("HEAD %s: %d with %d bytes", format, w.Code, w.Body.Len())
		}
	}
}

func TestDebug_Formats(t *testing.T) {
	h := httpdrain.Debug(ctxshutdown.New(context.Background()))
	for _, c := range []struct{ target, accept, want string }{
		{"/debug/shutdown", "", "text/html"},
		{"/debug/shutdown", "*/*", "text/html"},
		{"/debug/shutdown", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"},
		{"/debug/shutdown", "application/json", "application/json"},
		{"/debug/shutdown", "text/html;q=0.5, application/json", "application/json"},
		{"/debug/shutdown", "application/json;q=0, text/html;q=0.1", "text/html"},
		{"/debug/shutdown", "text/event-stream", "text/event-stream"},
		{"/debug/shutdown", ";;;,nonsense", "text/html"},
		{"/debug/shutdown/events", "", "text/event-stream"},
		{"/debug/shutdown/events?format=json", "text/html", "application/json"},
		{"/debug/shutdown?format=events", "text/html", "text/event-stream"},
		{"/debug/shutdown?format=html", "application/json", "text/html"},
		{"/debug/shutdown?format=xml", "", "text/plain"},
	} {
		r := debugRequest("HEAD", c.target)
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";"); got != c.want {
			t.Errorf("%s with Accept %q: %q, want %q", c.target, c.accept, got, c.want)
		}
	}
}

// Only the machine itself is answered, by a name that cannot be anybody else's, and not by way of a proxy.
func TestDebug_Access(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	unix := context.WithValue(context.Background(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/x.sock", Net: "unix"})
	for _, c := range []struct {
		name, remote, host string
		header             string
		ctx                context.Context
		opts               []httpdrain.DebugOption
		refused            string // what the refusal says; empty: it is answered
	}{
		{name: "loopback", remote: "127.0.0.1:1", host: "127.0.0.1:8080"},
		{name: "another loopback address", remote: "127.8.9.10:1", host: "localhost"},
		{name: "IPv6", remote: "[::1]:1", host: "[::1]:8080"},
		{name: "IPv6 without port", remote: "[::1]:1", host: "[::1]"},
		{name: "IPv4 in IPv6", remote: "[::ffff:127.0.0.1]:1", host: "LOCALHOST:80"},
		{name: "unix socket", remote: "@", host: "localhost", ctx: unix},
		{name: "nobody knows", remote: "@", host: "localhost", refused: "local machine only"},
		{name: "remote", remote: "192.0.2.1:1", host: "localhost", refused: "kubectl port-forward"},
		{name: "remote with a header", remote: "192.0.2.1:1", host: "localhost", header: "X-Forwarded-For", refused: "AllowRemote("},
		{name: "a private address is remote", remote: "10.0.0.1:1", host: "10.0.0.2", refused: "local machine only"},
		{name: "IPv6 link-local is remote", remote: "[fe80::1%eth0]:1", host: "localhost", refused: "local machine only"},
		{name: "proxy", remote: "127.0.0.1:1", host: "localhost", header: "X-Forwarded-For", refused: "X-Forwarded-For"},
		{name: "proxy by the standard", remote: "127.0.0.1:1", host: "localhost", header: "Forwarded", refused: "passed on by a proxy"},
		{name: "sidecar", remote: "127.0.0.6:1", host: "localhost", header: "X-Forwarded-Proto", refused: "passed on by a proxy"},
		{name: "rebinding", remote: "127.0.0.1:1", host: "evil.example:8080", refused: `"evil.example"`},
		{name: "rebinding by a prefix", remote: "127.0.0.1:1", host: "localhost.evil.example", refused: "DNS rebinding"},
		{name: "rebinding by a suffix", remote: "127.0.0.1:1", host: "127.0.0.1.evil.example", refused: "DNS rebinding"},
		{name: "an address that is not here", remote: "127.0.0.1:1", host: "192.0.2.1", refused: "DNS rebinding"},
		{name: "no host", remote: "127.0.0.1:1", host: "", refused: "DNS rebinding"},
		{name: "hostile host", remote: "127.0.0.1:1", host: "<script>\u202e", refused: `\u202e`},

		{name: "allowed", remote: "192.0.2.1:1", host: "192.0.2.2:80", opts: []httpdrain.DebugOption{httpdrain.AllowRemote()}},
		{name: "allowed behind a proxy", remote: "127.0.0.1:1", host: "10.0.0.9", header: "X-Forwarded-For", opts: []httpdrain.DebugOption{httpdrain.AllowRemote()}},
		{name: "allowed, rebinding", remote: "192.0.2.1:1", host: "evil.example", opts: []httpdrain.DebugOption{httpdrain.AllowRemote()}, refused: `httpdrain.AllowRemote("evil.example")`},
		{name: "allowed by name", remote: "192.0.2.1:1", host: "Ops.example:8080", opts: []httpdrain.DebugOption{httpdrain.AllowRemote("a.example"), nil, httpdrain.AllowRemote("ops.example")}},
		{name: "allowed by another name", remote: "192.0.2.1:1", host: "evil.example", opts: []httpdrain.DebugOption{httpdrain.AllowRemote("ops.example")}, refused: "DNS rebinding"},
		{name: "allowed by any", remote: "192.0.2.1:1", host: "any.example", opts: []httpdrain.DebugOption{httpdrain.AllowRemote("*")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, format := range []string{"html", "json", "events"} {
				r := debugRequest("GET", "/debug/shutdown?format="+format)
				r.RemoteAddr, r.Host = c.remote, c.host
				if c.ctx != nil {
					r = r.WithContext(c.ctx)
				}
				ctx, cancel := context.WithCancel(r.Context())
				cancel() // a stream that is not refused has one event
				r = r.WithContext(ctx)
				if c.header != "" {
					r.Header.Set(c.header, "127.0.0.1")
				}
				w := httptest.NewRecorder()
				httpdrain.Debug(s, c.opts...).ServeHTTP(w, r)
				body := w.Body.String()
				switch {
				case c.refused == "" && w.Code != http.StatusOK:
					t.Errorf("%s: %d %s", format, w.Code, body)
				case c.refused != "" && (w.Code != http.StatusForbidden || !strings.Contains(body, c.refused)):
					t.Errorf("%s: %d, want 403 and %q in\n%s", format, w.Code, c.refused, body)
				case c.refused != "" && !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain"):
					t.Errorf("%s: the refusal is %s", format, w.Header().Get("Content-Type"))
				}
			}
		})
	}
}

// Ten thousand scopes are as many rows as somebody can read, and nothing is left out of the sums.
func TestDebug_TenThousandScopes(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	h := httpdrain.Debug(s)
	total := 0
	hold := func(path string, n int) {
		at := s
		for _, name := range strings.Split(path, "/") {
			at = debugChild(at, name)
		}
		debugGuards(at, n)
		total += n
	}
	for i := range 4000 {
		hold(fmt.Sprintf("http/conn-%d/stream-%d", i/4, i), 1+i%3)
	}
	for i := range 6000 {
		hold(fmt.Sprintf("job %d %s", i, strings.Repeat(`"<`, 60)), 1)
	}
	const most = 400_000
	stream := debugStream(h, debugRequest("GET", "/?format=events&part=html"))
	_, event := stream.next(t)
	stream.leave()
	<-stream.done
	body := debugGet(h, "/?format=json").Body.String()
	for what, n := range map[string]int{"page": debugGet(h, "/").Body.Len(), "JSON": len(body), "event": len(event)} {
		if n > most {
			t.Errorf("the %s has %d bytes, want at most %d", what, n, most)
		}
	}
	v := debugState(t, body)
	rows := 0
	var check func(n debugNode)
	check = func(n debugNode) {
		sum := 0
		for _, kid := range n.Children {
			rows++
			sum += kid.Guards
			check(kid)
		}
		if n.Hidden != nil {
			sum += n.Hidden.Guards
		}
		if (len(n.Children) > 0 || n.Hidden != nil) && sum != n.Guards {
			t.Errorf("%s: %d guards, but %d in the rows below", n.Path, n.Guards, sum)
		}
	}
	check(v.Tree)
	if rows > 200 || v.Guards != total || v.Tree.Guards != total || v.Scopes != 10_000 || v.Tree.Scopes != 10_000 {
		t.Errorf("%d rows, %d and %d guards of %d in %d and %d scopes", rows, v.Guards, v.Tree.Guards, total, v.Scopes, v.Tree.Scopes)
	}
	if v.Blockers[0].Path != "http" || v.Blockers[0].Scopes != 4000 {
		t.Errorf("the first to be blamed is %+v", v.Blockers[0])
	}

	named := ctxshutdown.New(context.Background(), ctxshutdown.WithName("root"))
	for i := range 9 {
		debugGuards(debugChild(named, fmt.Sprint("job-", i)), 9-i)
	}
	if b := debugState(t, debugGet(httpdrain.Debug(named), "/?format=json").Body.String()).Blockers; len(b) != 5 || b[0].Path != "root/job-0" {
		t.Errorf("under a root with a name, %+v are to be blamed", b)
	}

	v = debugState(t, debugGet(h, "/?format=json&q=STREAM-3999").Body.String())
	if v.Tree.Scopes != 1 || v.Scopes != 10_000 || v.Tree.Children[0].Name != "http/conn-999/stream-3999" {
		t.Errorf("the filter finds %+v", v.Tree)
	}
}

// The depth of a tree is bounded, too: one row is the rest of the path.
func TestDebug_DeepTree(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	at := s
	for i := range 500 {
		at = debugChild(at, fmt.Sprint("level-", i))
		defer at.Guard().Release()
	}
	v := debugState(t, debugGet(httpdrain.Debug(s), "/?format=json").Body.String())
	depth := 0
	for n := v.Tree; len(n.Children) > 0; n = n.Children[0] {
		depth++
	}
	if depth > 12 || v.Tree.Guards != 500 {
		t.Errorf("%d levels with %d guards", depth, v.Tree.Guards)
	}
}

// A debugStreamed is the other end of a stream: what is not read there holds up the writer.
type debugStreamed struct {
	r     *io.PipeReader
	lines *bufio.Reader
	leave context.CancelFunc
	done  chan struct{} // the handler has returned
}

type debugStreamWriter struct {
	*io.PipeWriter
	header http.Header
}

func (w debugStreamWriter) Header() http.Header { return w.header }
func (w debugStreamWriter) WriteHeader(int)     {}
func (w debugStreamWriter) FlushError() error   { return nil }

func debugStream(h http.Handler, req *http.Request) *debugStreamed {
	ctx, cancel := context.WithCancel(req.Context())
	r, w := io.Pipe()
	s := &debugStreamed{r: r, lines: bufio.NewReader(r), leave: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer w.Close()
		h.ServeHTTP(debugStreamWriter{w, http.Header{}}, req.WithContext(ctx))
	}()
	return s
}

// next returns the next event, or "" and "" after the last one. Comments are left out.
func (s *debugStreamed) next(t *testing.T) (event, data string) {
	t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err == io.EOF {
			return "", ""
		}
		if err != nil {
			t.Fatal(err)
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			event = value
		case "data":
			data += value + "\n"
		case "":
			if event != "" {
				return event, strings.TrimSuffix(data, "\n")
			}
		case "retry":
		default:
			t.Fatalf("a line %q", line)
		}
	}
}

// all returns the states of the events to come, and how the stream ends.
func (s *debugStreamed) all(t *testing.T) (states []string) {
	for {
		switch event, data := s.next(t); event {
		case "":
			return states
		case "state":
			v := debugState(t, data)
			states = append(states, fmt.Sprint(v.State, " ", v.Guards))
		default:
			states = append(states, event+" "+data)
		}
	}
}

// A stream tells of every change, holds nothing up, and ends with the scope.
func TestDebug_StreamOfADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &debugLadder{}
		s := ctxshutdown.New(context.Background())
		h := httpdrain.DebugOn(s, l)
		a, b := s.Guard(), s.Guard()
		left := false
		stream := debugStream(h, httpdrain.WithUncount(debugRequest("GET", "/events"), func() { left = true }))
		got := make(chan []string)
		go func() { got <- stream.all(t) }()
		time.Sleep(10 * time.Second)
		if s.GuardCount() != 2 || !left || l.watched() != 1 {
			t.Errorf("%d guards, want the two; left what Serve counts: %v; %d watchers", s.GuardCount(), left, l.watched())
		}
		l.enter(graceful.LameDuck, 3*time.Second)
		time.Sleep(3 * time.Second)
		l.enter(graceful.Soft, 10*time.Second)
		s.Shutdown()
		time.Sleep(time.Second)
		a.Release()
		time.Sleep(time.Second)
		b.Release()
		synctest.Wait()
		select {
		case <-stream.done: // without anybody having waited
		default:
			t.Error("all work is done, and the stream is not over")
			stream.leave()
		}
		want := []string{"Running 2", "Running 2", "ShuttingDown 2", "ShuttingDown 1", "Complete 0", "end complete"}
		states := slices.Compact(<-got) // with the clock, the time axis moves on
		if diff := cmp.Diff(slices.Compact(want), states); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if l.watched() != 0 {
			t.Error("the stream still watches the process")
		}
	})
}

// On the hard tier a stream ends; whoever asks again is told once.
func TestDebug_StreamEndsByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := httpdrain.Debug(s)
		g := s.Guard()
		s.Shutdown()
		stream := debugStream(h, debugRequest("GET", "/events"))
		if event, _ := stream.next(t); event != "state" {
			t.Fatalf("event %q", event)
		}
		s.Force(nil)
		want := []string{"ShuttingDown 1", "end forced"}
		if diff := cmp.Diff(want, stream.all(t)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		again := debugStream(h, debugRequest("GET", "/events"))
		if diff := cmp.Diff(want, again.all(t)); diff != "" {
			t.Errorf("events of another stream (-want +got):\n%s", diff)
		}
		g.Release()
		last := debugStream(h, debugRequest("GET", "/events"))
		if diff := cmp.Diff([]string{"Complete 0", "end complete"}, last.all(t)); diff != "" {
			t.Errorf("events of the last stream (-want +got):\n%s", diff)
		}
	})
}

// Where the request's own context is Work, and ends with the scope, there is a last event all the same.
func TestDebug_StreamUnderWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // select has a choice
			s := ctxshutdown.New(context.Background())
			h := httpdrain.Debug(s)
			stream := debugStream(h, debugRequest("GET", "/events").WithContext(s.Work()))
			if event, _ := stream.next(t); event != "state" {
				t.Fatalf("event %q", event)
			}
			s.Shutdown()
			if diff := cmp.Diff([]string{"Complete 0", "end complete"}, stream.all(t)); diff != "" {
				t.Fatalf("events (-want +got):\n%s", diff)
			}
		}
	})
}

// Who reads slowly gets the newest state, and nothing of what was before; nobody waits for him.
func TestDebug_StreamToASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		h := httpdrain.Debug(s)
		stream := debugStream(h, debugRequest("GET", "/events"))
		synctest.Wait()
		var release []func()
		for range 100 {
			release = append(release, debugGuards(s, 1))
			time.Sleep(time.Second) // the first event is still not read
		}
		var states []string
		for range 2 {
			_, data := stream.next(t)
			states = append(states, fmt.Sprint(debugState(t, data).Guards))
		}
		if diff := cmp.Diff([]string{"0", "100"}, states); diff != "" {
			t.Errorf("guards (-want +got):\n%s", diff)
		}
		time.Sleep(time.Second)
		for _, f := range release {
			f()
		}
		s.Shutdown().Wait(context.Background()) // complete, and nobody reads
		stream.r.Close()                        // and then goes away
		<-stream.done
	})
}

// However much happens, there are four events a second, and none while nothing does but the moving time axis.
func TestDebug_StreamRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.Background())
		l := &debugLadder{}
		h := httpdrain.DebugOn(s, l)
		defer s.Guard().Release()
		l.enter(graceful.Soft, time.Hour)
		s.Shutdown()
		var mu sync.Mutex
		events := 0
		stream := debugStream(h, debugRequest("GET", "/events"))
		go func() {
			for {
				if event, _ := stream.next(t); event == "" {
					return
				}
				mu.Lock()
				events++
				mu.Unlock()
			}
		}()
		count := func() (n int) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			n, events = events, 0
			return n
		}
		time.Sleep(10 * time.Second)
		if n := count(); n != 1 {
			t.Errorf("%d events while nothing has changed, want the first only", n)
		}
		for i := range 10_000 {
			g := s.Guard()
			if i%2 == 0 {
				defer g.Release()
			} else {
				g.Release()
			}
			l.enter(graceful.Soft, time.Hour, func(st *graceful.Status) { st.Extended += time.Second })
			time.Sleep(time.Millisecond)
		}
		if n := count(); n < 20 || n > 42 {
			t.Errorf("%d events in ten seconds of change, want about 40", n)
		}
		stream.leave()
		<-stream.done
	})
}

// The handler has no goroutine of its own: not before, not after, and not because of those who look.
func TestDebug_LeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := ctxshutdown.New(context.Background())
	release := debugGuards(s, 3)
	before := goleak.IgnoreCurrent()
	h := httpdrain.Debug(s)
	debugGet(h, "/")
	debugGet(h, "/?format=json")
	goleak.VerifyNone(t, before)

	mux := http.NewServeMux()
	mux.Handle("GET /debug/shutdown", h)
	srv := httptest.NewServer(mux)
	client := srv.Client()
	req, _ := http.NewRequest("GET", srv.URL+"/debug/shutdown", nil)
	req.Header.Set("Accept", "text/event-stream")
	var bodies []io.ReadCloser
	for range 3 {
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, resp.Body)
	}
	bodies[0].Close() // gone in the middle
	s.Shutdown()
	release()
	for _, body := range bodies[1:] {
		b, err := io.ReadAll(body) // to the end of the stream, which is the end of the scope
		if err != nil || !bytes.HasSuffix(b, []byte("event: end\ndata: complete\n\n")) {
			t.Errorf("%v after %q", err, b)
		}
		body.Close()
	}
	client.CloseIdleConnections()
	srv.Close()
}

// Under Serve, a request is a guard, but a stream is not: the drain is over although somebody watches it.
func TestDebug_UnderServe(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := ctxshutdown.New(context.Background())
	mux := http.NewServeMux()
	mux.Handle("GET /debug/shutdown", httpdrain.Debug(s))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- httpdrain.Serve(s, &http.Server{Handler: mux}, ln) }()
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Get("http://" + ln.Addr().String() + "/debug/shutdown?format=events")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	stream := &debugStreamed{lines: lines}
	if event, data := stream.next(t); event != "state" || debugState(t, data).Guards > 2 { // Serve's own, and the request's until it has left
		t.Errorf("event %q: %s", event, data)
	}
	done := s.Shutdown()
	if err := <-served; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	<-done.Done()
	io.Copy(io.Discard, resp.Body) // it has ended, with or without a last event
	resp.Body.Close()
	client.CloseIdleConnections()
}

func TestDebug_NilScope(t *testing.T) {
	defer func() {
		if got := recover(); got == nil || !strings.Contains(fmt.Sprint(got), "nil scope") {
			t.Errorf("panic %v", got)
		}
	}()
	httpdrain.Debug(nil)
}
