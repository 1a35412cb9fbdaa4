package launcher_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/swansong-go/swansong/launcher"
)

// refused returns why a group may not listen.
func refused(t *testing.T, err error) string {
	t.Helper()
	var rule *launcher.ConfigError
	if !errors.As(err, &rule) || rule.Field != "Listen" {
		t.Fatalf("%v; want a refusal that names Listen", err)
	}
	return rule.Rule
}

// Addresses of which only one can be had are told apart before anybody listens, and who has the other one is said, however the
// two are written.
func TestListenersThatOverlap(t *testing.T) {
	_, port, _ := net.SplitHostPort(freeAddress(t))
	at := func(name, network, host string) launcher.GroupConfig {
		g := runners(name, 0)
		g.Listen = []launcher.Listen{{Network: network, Address: net.JoinHostPort(host, port)}}
		return g
	}
	start := func(groups ...launcher.GroupConfig) error {
		_, err := launcher.Start(context.Background(), launcher.Config{Dir: shortDir(t), Groups: groups})
		return err
	}
	none := runners("none", 0)
	h := launch(t, none).ready()
	reload := func(groups ...launcher.GroupConfig) error {
		return h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: append(groups, none)}, "test")
	}
	type pair struct{ has, wants string }
	pairs := []pair{{"127.0.0.1", "127.0.0.1"}, {"127.0.0.1", "localhost"}, {"localhost", "127.0.0.1"}, {"127.0.0.1", "0.0.0.0"}}
	for _, host := range []string{"", "0.0.0.0", "::", "localhost", "127.0.0.1", "::1"} {
		pairs = append(pairs, pair{"", host})
	}
	for _, p := range pairs {
		has, web := at("has", "tcp", p.has), at("web", "tcp", p.wants)
		what, said := p.has+" and "+p.wants, "tcp "+has.Listen[0].Address
		if p.has != p.wants {
			said += ", and with it tcp " + web.Listen[0].Address + ","
		}
		another := `group "has" has ` + said + ` already; choose another address`
		equal(t, what+", start", refused(t, start(has, web)), another)
		both := has
		both.Listen = append(slices.Clone(has.Listen), web.Listen...)
		equal(t, what+", start of one group", strings.HasSuffix(refused(t, start(both)), " has "+said+" already; choose another address"), true)
		equal(t, what+", reload with two that are new", refused(t, reload(has, web)), another)
		if err := reload(has); err != nil {
			t.Fatal(err)
		}
		equal(t, what+", reload", refused(t, reload(has, web)), another)
		equal(t, what+", reload without the first one", refused(t, reload(web)),
			`group "has" has `+said+` until it is gone; take that out first, and add "web" by another reload`)
		if err := reload(); err != nil {
			t.Fatal(err)
		}
	}
	if err := reload(at("four", "tcp4", ""), at("six", "tcp6", "")); err != nil {
		t.Errorf("all of IPv4, and all of IPv6: %v", err)
	}
}

// A port 0 is known by the port that it has become.
func TestListenersThatOverlap_AnyPort(t *testing.T) {
	has, web := runners("has", 0), runners("web", 0)
	has.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Address: "127.0.0.1:0"}}
	h := launch(t, has).ready()
	web.Listen = []launcher.Listen{{Address: h.Addrs("has")[1].String()}}
	err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{has, web}}, "test")
	equal(t, "why", refused(t, err), `group "has" has tcp 127.0.0.1:0, and with it tcp `+web.Listen[0].Address+`, already; choose another address`)
}

// Who was kept has what another one wants, and it is not the same: it is said who that is, and what to do.
func TestKept_HasWhatOverlaps(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	_, port, _ := net.SplitHostPort(freeAddress(t))
	web.Listen = []launcher.Listen{{Address: ":" + port}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").hears("ready").kill()

	next := kept(b.of(runners("next", 1)))
	next.Listen = []launcher.Listen{{Address: "127.0.0.1:" + port}}
	cfg.Groups = []launcher.GroupConfig{next}
	_, err := launcher.Start(context.Background(), cfg)
	want := `processes of group "web", which an earlier launcher has kept, listen on tcp :` + port + `: start once without "next", until they have ended, or choose another address`
	if said := refused(t, err); !strings.HasSuffix(said, want) {
		t.Errorf("%q does not say %q", said, want)
	}

	next.Listen[0].Address = "0.0.0.0:" + port // which is the same
	h := launchWith(t, cfg)
	h.ends("web-1")
	h.ready()
	if err := fetch(&http.Client{Timeout: tooLong}, "http://127.0.0.1:"+port); err != nil {
		t.Error(err)
	}
}

// A port 0 that was kept is known by the port that it has become. Whoever wants that one takes it over, unless its own group wants any
// port still.
func TestKept_HasAPortThatSomebodyWants(t *testing.T) {
	b := newBrood(t)
	web, next := kept(b.of(runners("web", 1))), kept(b.of(runners("next", 1)))
	web.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	first := startAnother(t, cfg, "address").hears("ready")
	has := first.line()
	first.kill()

	_, port, _ := net.SplitHostPort(has)
	leaves := `processes of group "web", which an earlier launcher has kept, listen on tcp 127.0.0.1:0, which is ` + has +
		`: start once without "next", until they have ended, or choose another address`
	stays := func(wants string) string {
		return `group "web" has tcp 127.0.0.1:0, and with it tcp ` + wants + `, already; choose another address`
	}
	for _, c := range []struct {
		wants  string
		groups []launcher.GroupConfig
		said   string
	}{
		{":" + port, []launcher.GroupConfig{next}, leaves},
		{":" + port, []launcher.GroupConfig{next, web}, stays(":" + port)},
		{":" + port, []launcher.GroupConfig{web, next}, stays(":" + port)},
		{has, []launcher.GroupConfig{next, web}, stays(has)},
		{has, []launcher.GroupConfig{web, next}, stays(has)},
		{"localhost:" + port, []launcher.GroupConfig{next, web}, stays("localhost:" + port)},
	} {
		for i := range c.groups {
			if c.groups[i].Name == "next" {
				c.groups[i].Listen = []launcher.Listen{{Address: c.wants}}
			}
		}
		m, err := launcher.Start(context.Background(), launcher.Config{Dir: cfg.Dir, Guardian: cfg.Guardian, Groups: c.groups})
		if err == nil {
			t.Errorf("%s: it listens on %v", c.wants, m.Addrs("next"))
			m.Shutdown().Wait(soon(t))
			return
		}
		if said := refused(t, err); !strings.HasSuffix(said, c.said) {
			t.Errorf("%s: %q does not say %q", c.wants, said, c.said)
		}
	}
	again := startAnother(t, cfg, "address").hears("ready")
	equal(t, "where it listens again", again.line(), has)
	again.kill()

	web.Listen[0].Address = has
	h := launchWith(t, cfg)
	equal(t, "where it listens by what it has become", h.Addrs("web")[0].String(), has)
	h.ends("web-1")
	h.ready()
	if err := fetch(&http.Client{Timeout: tooLong}, "http://"+has); err != nil {
		t.Error(err)
	}
}

// One socket that was kept is for one listener, however many are written that it could be: the others are refused, as they are where nobody
// was kept.
func TestKept_OneSocketIsForOne(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	has := freeAddress(t)
	web.Listen = []launcher.Listen{{Address: has}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").hears("ready").kill()

	_, port, _ := net.SplitHostPort(has)
	next := cfg
	next.Groups = []launcher.GroupConfig{web}
	next.Groups[0].Listen = []launcher.Listen{{Address: has}, {Address: "localhost:" + port}}
	want := "the group has tcp " + has + ", and with it tcp localhost:" + port + ", already; choose another address"
	m, err := launcher.Start(context.Background(), next)
	if err == nil {
		t.Errorf("it listens on %v", m.Addrs("web"))
		m.Shutdown().Wait(soon(t))
	} else {
		equal(t, "why", refused(t, err), want)
		launchWith(t, cfg).ready()
	}
}

// A name may stand for another address each time that it is looked up, and it takes time: so it is looked up once.
func TestKept_NameOfAHost(t *testing.T) {
	b := newBrood(t)
	web, next := kept(b.of(runners("web", 1))), kept(b.of(runners("next", 1)))
	_, port, _ := net.SplitHostPort(freeAddress(t))
	web.Listen = []launcher.Listen{{Address: "127.0.0.2:" + port}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").hears("ready").kill()

	next.Listen = []launcher.Listen{{Network: "tcp4", Address: "web.test.:" + port}}
	cfg.Groups = []launcher.GroupConfig{next}
	other, err := net.Listen("tcp", "127.0.0.4:"+port)
	if err != nil {
		t.Fatal(err)
	}
	asked := lookUps(t, "127.0.0.4", "127.0.0.2")
	_, err = launcher.Start(context.Background(), cfg)
	equal(t, "why not", refused(t, err), "listen tcp4 127.0.0.4:"+port+": bind: address already in use")
	equal(t, "look-ups for a refusal", asked.Load(), int32(1))
	other.Close()

	asked = lookUps(t)
	_, err = launcher.Start(context.Background(), cfg)
	if said := refused(t, err); !strings.HasPrefix(said, "listen tcp4: lookup web.test") {
		t.Errorf("%q does not say that there is no such name", said)
	}
	equal(t, "look-ups of a name that is none", asked.Load(), int32(1))

	asked = lookUps(t, "127.0.0.3", "127.0.0.2")
	h := launchWith(t, cfg)
	equal(t, "where it listens", h.Addrs("next")[0].String(), "127.0.0.3:"+port)
	equal(t, "look-ups", asked.Load(), int32(1))
	h.ends("web-1")
	h.ready()
}

// lookUps has the names of hosts be looked up with a server of the test, which has other addresses each time, and after the last of these
// none. It counts how often it is asked.
func lookUps(t *testing.T, addresses ...string) *atomic.Int32 {
	t.Helper()
	asked := new(atomic.Int32)
	resolver := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = resolver })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			header := make([]byte, 2+12) // the length of the message, and what comes before the question: RFC 1035
			if _, err := io.ReadFull(server, header); err != nil {
				return
			}
			rest := make([]byte, int(binary.BigEndian.Uint16(header))-12)
			if _, err := io.ReadFull(server, rest); err != nil {
				return
			}
			question := rest[:bytes.IndexByte(rest, 0)+5]
			said := slices.Concat(header[2:4], []byte{0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0}, question) // there is no such name
			if n := int(asked.Add(1)); n <= len(addresses) {
				said[3], said[7] = 0x80, 1
				said = append(said, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				said = append(said, net.ParseIP(addresses[n-1]).To4()...)
			}
			server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(said))), said...))
		}()
		return client, nil
	}}
	return asked
}

// Two listeners that are written alike are two, also for the next launcher.
func TestKept_ListenersOnAnyPort(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	web.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Address: "127.0.0.1:0"}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").hears("ready").kill()
	h := launchWith(t, cfg).ready()
	addrs := h.Addrs("web")
	if addrs[0].String() == addrs[1].String() {
		t.Errorf("both are %v", addrs[0])
	}
}

// Where one of two ports 0 is named by what it has become, that is it, and the other one is the other.
func TestKept_OneOfTwoPortsIsNamed(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	web.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Address: "127.0.0.1:0"}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	first := startAnother(t, cfg, "address").hears("ready")
	one, other := first.line(), first.line()
	first.kill()
	cfg.Groups[0].Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Address: one}}
	h := launchWith(t, cfg)
	equal(t, "where it listens", fmt.Sprint(h.Addrs("web")), fmt.Sprint([]string{other, one}))
	h.ends("web-1")
	h.ready()
}
