package debugpage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain/internal/debugpage"
	"github.com/swansong-go/swansong/internal/testkit"
)

var hostileTexts = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onfocus='alert(1)`, `</title></style><svg/onload=alert(1)>`,
	"two\nlines\r\nevent: end\ndata: complete", "\u202eright to left", "שלום", `{{.Guards}}`, "nul\x00 \xff", `&lt;b&gt;`,
}

// Hostile names, causes, filters and reasons appear as text: they add no HTML to the page, and no
// event to the stream of server-sent events.
func TestHandler_EscapesNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{}
		s := ctxshutdown.New(context.Background(), ctxshutdown.WithName(hostileTexts[0]))
		h := debugpage.New(s, p, debugpage.Options{LocalOnly: true})
		for _, name := range hostileTexts {
			defer acquire(child(s, name), 1)()
		}
		all := strings.Join(hostileTexts, " ")
		p.enter(graceful.Soft, time.Minute, func(st *graceful.Status) { st.Cause, st.Reason, st.Extended = errors.New(all), all, 1 })
		s.ShutdownCause(errors.New(all))
		query := "&q=" + strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", " ", "%20").Replace(hostileTexts[1]) + "%0d%0aevent:end"
		for target, tags := range map[string]int{"/?": 1, "/?" + query: 1} {
			page := get(h, target).Body.String()
			if n := strings.Count(strings.ToLower(page), "<script"); n != tags {
				t.Errorf("%s: %d script elements, want %d", target, n, tags)
			}
			// Apart from scripts and styles, the page contains no angle bracket or quote from a
			// name.
			page = regexp.MustCompile(`(?s)<(script|style)>.*?</(script|style)>`).ReplaceAllString(page, "")
			for _, bad := range []string{"<img", "<svg/", "alert(1)>", "\u202e", "\x00", "\xff", "onfocus='"} {
				if strings.Contains(page, bad) {
					t.Errorf("%s: the page contains %q", target, bad)
				}
			}
			if !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;") && target == "/?" {
				t.Errorf("%s: the name is not on the page", target)
			}
		}
		for _, part := range []string{"", "&part=html"} {
			stream := openStream(h, localRequest("GET", "/?format=events"+part+query))
			event, data := stream.next(t)
			if event != "state" || strings.Contains(data, "\r") {
				t.Errorf("event %q: %q", event, data)
			}
			stream.leave()
			if rest, _ := io.ReadAll(stream.r); len(bytes.TrimSpace(rest)) > 0 {
				t.Errorf("a name was sent as an event: %q", rest)
			}
		}
		if v := decode(t, get(h, "/?format=json").Body.String()); strings.ContainsAny(v.Cause, "\n\r\x00\u202e") {
			t.Errorf("cause %q", v.Cause)
		}
	})
}

// The policy permits exactly the page's style and script, by their hashes, and the page contains
// nothing else.
func TestHandler_CSPPermitsOnlyStyleAndScriptOfPage(t *testing.T) {
	h := debugpage.New(ctxshutdown.New(context.Background()), nil, debugpage.Options{LocalOnly: true})
	w := get(h, "/debug/shutdown")
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
	testkit.Equal(t, "header", w.Header(), want)
	for _, bad := range []string{` style=`, ` on\w+=`, `(src|href)="?(https?:)?//`, `@import`, `url\(["']?http`} {
		if m := regexp.MustCompile(`<[^>]*` + bad).FindString(page); m != "" {
			t.Errorf("the page contains %q, which the policy forbids", m)
		}
	}
	for _, target := range []string{"/?format=json", "/?format=nonsense"} {
		if got := get(h, target).Header(); got.Get("Content-Security-Policy") == "" || got.Get("Cache-Control") != "no-store" ||
			got.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: header %v", target, got)
		}
	}
}

func TestHandler_RejectsMethodsOtherThanGETAndHEAD(t *testing.T) {
	h := debugpage.New(ctxshutdown.New(context.Background()), nil, debugpage.Options{LocalOnly: true})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, localRequest(method, "/"))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	for _, format := range []string{"html", "json", "events"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, localRequest("HEAD", "/?format="+format))
		if w.Code != http.StatusOK || w.Body.Len() != 0 {
			t.Errorf("HEAD %s: %d with %d bytes", format, w.Code, w.Body.Len())
		}
	}
}

func TestHandler_ChoosesFormatByQueryPathAndAcceptHeader(t *testing.T) {
	h := debugpage.New(ctxshutdown.New(context.Background()), nil, debugpage.Options{LocalOnly: true})
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
		r := localRequest("HEAD", c.target)
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

// With LocalOnly, only requests from the local machine, without a proxy, and for a local host name
// are answered.
func TestHandler_AnswersLocalRequestsOnly(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	unix := context.WithValue(context.Background(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/x.sock", Net: "unix"})
	for _, c := range []struct {
		name, remote, host string
		header             string
		http10             bool
		ctx                context.Context
		opts               debugpage.Options
		refused            string // a part of the text with which the request is refused; empty if the request is permitted
	}{
		{name: "loopback", remote: "127.0.0.1:1", host: "127.0.0.1:8080", opts: debugpage.Options{LocalOnly: true}},
		{name: "another loopback address", remote: "127.8.9.10:1", host: "localhost", opts: debugpage.Options{LocalOnly: true}},
		{name: "IPv6", remote: "[::1]:1", host: "[::1]:8080", opts: debugpage.Options{LocalOnly: true}},
		{name: "IPv6 without port", remote: "[::1]:1", host: "[::1]", opts: debugpage.Options{LocalOnly: true}},
		{name: "IPv4 in IPv6", remote: "[::ffff:127.0.0.1]:1", host: "LOCALHOST:80", opts: debugpage.Options{LocalOnly: true}},
		{name: "unix socket", remote: "@", host: "localhost", ctx: unix, opts: debugpage.Options{LocalOnly: true}},
		{name: "unknown address", remote: "@", host: "localhost", refused: "local machine only", opts: debugpage.Options{LocalOnly: true}},
		{name: "remote", remote: "192.0.2.1:1", host: "localhost", refused: "kubectl port-forward", opts: debugpage.Options{LocalOnly: true}},
		{name: "remote with a header", remote: "192.0.2.1:1", host: "localhost", header: "X-Forwarded-For", refused: "AllowRemote(", opts: debugpage.Options{LocalOnly: true}},
		{name: "a private address is remote", remote: "10.0.0.1:1", host: "10.0.0.2", refused: "local machine only", opts: debugpage.Options{LocalOnly: true}},
		{name: "IPv6 link-local is remote", remote: "[fe80::1%eth0]:1", host: "localhost", refused: "local machine only", opts: debugpage.Options{LocalOnly: true}},
		{name: "proxy", remote: "127.0.0.1:1", host: "localhost", header: "X-Forwarded-For", refused: "X-Forwarded-For", opts: debugpage.Options{LocalOnly: true}},
		{name: "proxy with a Forwarded header", remote: "127.0.0.1:1", host: "localhost", header: "Forwarded", refused: "forwarded by a proxy", opts: debugpage.Options{LocalOnly: true}},
		{name: "sidecar", remote: "127.0.0.6:1", host: "localhost", header: "X-Forwarded-Proto", refused: "forwarded by a proxy", opts: debugpage.Options{LocalOnly: true}},
		{name: "nginx with its defaults", remote: "127.0.0.1:1", host: "127.0.0.1:8080", http10: true, refused: "HTTP/1.0", opts: debugpage.Options{LocalOnly: true}},
		{name: "allowed with HTTP/1.0", remote: "127.0.0.1:1", host: "127.0.0.1:8080", http10: true, opts: debugpage.Options{AllowRemote: true}},
		{name: "rebinding", remote: "127.0.0.1:1", host: "evil.example:8080", refused: `"evil.example"`, opts: debugpage.Options{LocalOnly: true}},
		{name: "rebinding by a prefix", remote: "127.0.0.1:1", host: "localhost.evil.example", refused: "DNS rebinding", opts: debugpage.Options{LocalOnly: true}},
		{name: "rebinding by a suffix", remote: "127.0.0.1:1", host: "127.0.0.1.evil.example", refused: "DNS rebinding", opts: debugpage.Options{LocalOnly: true}},
		{name: "an address that is not here", remote: "127.0.0.1:1", host: "192.0.2.1", refused: "DNS rebinding", opts: debugpage.Options{LocalOnly: true}},
		{name: "no host", remote: "127.0.0.1:1", host: "", refused: "DNS rebinding", opts: debugpage.Options{LocalOnly: true}},
		{name: "hostile host", remote: "127.0.0.1:1", host: "<script>\u202e", refused: `\u202e`, opts: debugpage.Options{LocalOnly: true}},

		{name: "allowed", remote: "192.0.2.1:1", host: "192.0.2.2:80", opts: debugpage.Options{AllowRemote: true}},
		{name: "allowed behind a proxy", remote: "127.0.0.1:1", host: "10.0.0.9", header: "X-Forwarded-For", opts: debugpage.Options{AllowRemote: true}},
		{name: "allowed, rebinding", remote: "192.0.2.1:1", host: "evil.example", opts: debugpage.Options{AllowRemote: true}, refused: `httpdrain.AllowRemote("evil.example")`},
		{name: "allowed by name", remote: "192.0.2.1:1", host: "Ops.example:8080", opts: debugpage.Options{AllowRemote: true, Hosts: []string{"a.example", "ops.example"}}},
		{name: "allowed by another name", remote: "192.0.2.1:1", host: "evil.example", opts: debugpage.Options{AllowRemote: true, Hosts: []string{"ops.example"}}, refused: "DNS rebinding"},
		{name: "a client's address in a header", remote: "127.0.0.1:1", host: "localhost", header: "True-Client-IP", opts: debugpage.Options{LocalOnly: true}, refused: "forwarded by a proxy"},
		{name: "Cloudflare", remote: "127.0.0.1:1", host: "localhost", header: "CF-Connecting-IP", opts: debugpage.Options{LocalOnly: true}, refused: "forwarded by a proxy"},
		{name: "Fastly", remote: "127.0.0.1:1", host: "localhost", header: "Fastly-Client-IP", opts: debugpage.Options{LocalOnly: true}, refused: "forwarded by a proxy"},
		{name: "another header", remote: "127.0.0.1:1", host: "localhost", header: "X-Client-IP", opts: debugpage.Options{LocalOnly: true}, refused: "forwarded by a proxy"},
		{name: "off by default", remote: "127.0.0.1:1", host: "localhost", refused: "This page is off"},
		{name: "an empty token", remote: "127.0.0.1:1", host: "localhost", header: "Authorization", opts: debugpage.Options{WithToken: true, LocalOnly: true}, refused: "its token is empty"},
		{name: "allowed by any", remote: "192.0.2.1:1", host: "any.example", opts: debugpage.Options{AllowRemote: true, Hosts: []string{"*"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, format := range []string{"html", "json", "events"} {
				r := localRequest("GET", "/debug/shutdown?format="+format)
				r.RemoteAddr, r.Host = c.remote, c.host
				if c.http10 {
					r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0
				}
				if c.ctx != nil {
					r = r.WithContext(c.ctx)
				}
				ctx, cancel := context.WithCancel(r.Context())
				cancel() // the cancelled context makes a stream end after its first event
				r = r.WithContext(ctx)
				if c.header != "" {
					r.Header.Set(c.header, "127.0.0.1")
				}
				w := httptest.NewRecorder()
				debugpage.New(s, nil, c.opts).ServeHTTP(w, r)
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

// With a token, requests from anywhere are answered if they have it, and the response to others
// asks for the token.
func TestHandler_AnswersRequestsWithToken(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	h := debugpage.New(s, nil, debugpage.Options{WithToken: true, Token: "correct horse"})
	for name, c := range map[string]struct {
		authorize func(*http.Request)
		want      int
	}{
		"none":               {func(r *http.Request) {}, http.StatusUnauthorized},
		"bearer":             {func(r *http.Request) { r.Header.Set("Authorization", "Bearer correct horse") }, http.StatusOK},
		"bearer, lower case": {func(r *http.Request) { r.Header.Set("Authorization", "bearer correct horse") }, http.StatusOK},
		"password":           {func(r *http.Request) { r.SetBasicAuth("me", "correct horse") }, http.StatusOK},
		"wrong":              {func(r *http.Request) { r.SetBasicAuth("me", "correct mule") }, http.StatusUnauthorized},
		"a part":             {func(r *http.Request) { r.Header.Set("Authorization", "Bearer correct") }, http.StatusUnauthorized},
		"empty":              {func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, http.StatusUnauthorized},
		"as the user's name": {func(r *http.Request) { r.SetBasicAuth("correct horse", "") }, http.StatusUnauthorized},
	} {
		r := httptest.NewRequest("GET", "http://shop.example/debug/shutdown", nil)
		r.RemoteAddr = "192.0.2.1:1"
		c.authorize(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if asks := w.Header().Get("WWW-Authenticate") != ""; w.Code != c.want || asks != (c.want == http.StatusUnauthorized) {
			t.Errorf("%s: %d, asks for the token: %v; want %d", name, w.Code, asks, c.want)
		}
	}
}
