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

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// refused checks that err is a ConfigError for the field Listen, and returns the rule that the
// setting violates.
func refused(t *testing.T, err error) string {
	t.Helper()
	var rule *launcher.ConfigError
	if !errors.As(err, &rule) || rule.Field != "Listen" {
		t.Fatalf("got %v, want a ConfigError for the field Listen", err)
	}
	return rule.Rule
}

// Addresses that exclude each other are refused before the launcher listens, however they are
// written. The error names the group that has the address.
func TestListen_RefusesConflictingAddresses(t *testing.T) {
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
			said += ", which conflicts with tcp " + web.Listen[0].Address
		}
		another := `group "has" already listens on ` + said + `; choose another address`
		testkit.Equal(t, what+", start", refused(t, start(has, web)), another)
		both := has
		both.Listen = append(slices.Clone(has.Listen), web.Listen...)
		testkit.Equal(t, what+", start of one group", strings.HasSuffix(refused(t, start(both)), " already listens on "+said+"; choose another address"), true)
		testkit.Equal(t, what+", reload with two that are new", refused(t, reload(has, web)), another)
		if err := reload(has); err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, what+", reload", refused(t, reload(has, web)), another)
		testkit.Equal(t, what+", reload without the first one", refused(t, reload(web)),
			`group "has" listens on `+said+` until its last process has ended; remove "has" by one reload, and add "web" by a later one`)
		if err := reload(); err != nil {
			t.Fatal(err)
		}
	}
	if err := reload(at("four", "tcp4", ""), at("six", "tcp6", "")); err != nil {
		t.Errorf("all of IPv4, and all of IPv6: %v", err)
	}
}

// A group listens on port 0, so the kernel has chosen its port. Another group cannot listen on that
// port.
func TestListen_RefusesPortThatKernelChoseForAnotherGroup(t *testing.T) {
	has, web := runners("has", 0), runners("web", 0)
	has.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Address: "127.0.0.1:0"}}
	h := launch(t, has).ready()
	web.Listen = []launcher.Listen{{Address: h.Addrs("has")[1].String()}}
	err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{has, web}}, "test")
	testkit.Equal(t, "why", refused(t, err), `group "has" already listens on tcp 127.0.0.1:0, which conflicts with tcp `+web.Listen[0].Address+`; choose another address`)
}

// A kept process listens on an address that conflicts with an address of the new configuration. The
// error names the group of that process and says what to do.
func TestKeptListener_AddressThatKeptProcessUsesIsRefused(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	_, port, _ := net.SplitHostPort(freeAddress(t))
	web.Listen = []launcher.Listen{{Address: ":" + port}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").checkLine("ready").kill()

	next := kept(b.of(runners("next", 1)))
	next.Listen = []launcher.Listen{{Address: "127.0.0.1:" + port}}
	cfg.Groups = []launcher.GroupConfig{next}
	_, err := launcher.Start(context.Background(), cfg)
	want := `processes of group "web", which an earlier launcher left running, listen on tcp :` + port + `: start the launcher without group "next" until they have ended, or choose another address`
	if said := refused(t, err); !strings.HasSuffix(said, want) {
		t.Errorf("%q does not say %q", said, want)
	}

	// This address means the same as the one before, so the group next takes over the listener.
	next.Listen[0].Address = "0.0.0.0:" + port
	h := launchWith(t, cfg)
	h.waitForEnd("web-1")
	h.ready()
	if err := fetch(&http.Client{Timeout: tooLong}, "http://127.0.0.1:"+port); err != nil {
		t.Error(err)
	}
}

// A kept listener with port 0 is taken over by a listener that is configured with its actual port,
// unless the group that has it is still configured with port 0.
func TestKeptListener_OnPort0IsTakenOverIfNewConfigHasItsActualPort(t *testing.T) {
	b := newBrood(t)
	web, next := kept(b.of(runners("web", 1))), kept(b.of(runners("next", 1)))
	web.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	first := startAnother(t, cfg, "address").checkLine("ready")
	has := first.line()
	first.kill()

	_, port, _ := net.SplitHostPort(has)
	leaves := `processes of group "web", which an earlier launcher left running, listen on tcp 127.0.0.1:0, which is ` + has +
		`: start the launcher without group "next" until they have ended, or choose another address`
	stays := func(wants string) string {
		return `group "web" already listens on tcp 127.0.0.1:0, which conflicts with tcp ` + wants + `; choose another address`
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
	again := startAnother(t, cfg, "address").checkLine("ready")
	testkit.Equal(t, "where it listens again", again.line(), has)
	again.kill()

	web.Listen[0].Address = has
	h := launchWith(t, cfg)
	testkit.Equal(t, "where it listens by what it has become", h.Addrs("web")[0].String(), has)
	h.waitForEnd("web-1")
	h.ready()
	if err := fetch(&http.Client{Timeout: tooLong}, "http://"+has); err != nil {
		t.Error(err)
	}
}

// A kept socket is taken over by one listener only. Other listeners that conflict with it are
// refused.
func TestKeptListener_SocketIsTakenOverByOnlyOneConfiguredListener(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	has := freeAddress(t)
	web.Listen = []launcher.Listen{{Address: has}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").checkLine("ready").kill()

	_, port, _ := net.SplitHostPort(has)
	next := cfg
	next.Groups = []launcher.GroupConfig{web}
	next.Groups[0].Listen = []launcher.Listen{{Address: has}, {Address: "localhost:" + port}}
	want := "the group already listens on tcp " + has + ", which conflicts with tcp localhost:" + port + "; choose another address"
	m, err := launcher.Start(context.Background(), next)
	if err == nil {
		t.Errorf("it listens on %v", m.Addrs("web"))
		m.Shutdown().Wait(soon(t))
	} else {
		testkit.Equal(t, "why", refused(t, err), want)
		launchWith(t, cfg).ready()
	}
}

// A host name is resolved once: resolving takes time, and may give another address each time.
func TestKeptListener_HostNameIsResolvedOnce(t *testing.T) {
	b := newBrood(t)
	web, next := kept(b.of(runners("web", 1))), kept(b.of(runners("next", 1)))
	_, port, _ := net.SplitHostPort(freeAddress(t))
	web.Listen = []launcher.Listen{{Address: "127.0.0.2:" + port}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").checkLine("ready").kill()

	next.Listen = []launcher.Listen{{Network: "tcp4", Address: "web.test.:" + port}}
	cfg.Groups = []launcher.GroupConfig{next}
	other, err := net.Listen("tcp", "127.0.0.4:"+port)
	if err != nil {
		t.Fatal(err)
	}
	lookups := stubDNS(t, "127.0.0.4", "127.0.0.2")
	_, err = launcher.Start(context.Background(), cfg)
	testkit.Equal(t, "error", refused(t, err), "listen tcp4 127.0.0.4:"+port+": bind: address already in use")
	testkit.Equal(t, "lookups before the refusal", lookups.Load(), int32(1))
	other.Close()

	lookups = stubDNS(t)
	_, err = launcher.Start(context.Background(), cfg)
	if said := refused(t, err); !strings.HasPrefix(said, "listen tcp4: lookup web.test") {
		t.Errorf("%q does not say that the name does not exist", said)
	}
	testkit.Equal(t, "lookups of a name that does not exist", lookups.Load(), int32(1))

	lookups = stubDNS(t, "127.0.0.3", "127.0.0.2")
	h := launchWith(t, cfg)
	testkit.Equal(t, "where it listens", h.Addrs("next")[0].String(), "127.0.0.3:"+port)
	testkit.Equal(t, "lookups", lookups.Load(), int32(1))
	h.waitForEnd("web-1")
	h.ready()
}

// stubDNS replaces the resolver by one that returns one of the addresses at each lookup, in order,
// and none once all were returned. It counts the lookups.
func stubDNS(t *testing.T, addresses ...string) *atomic.Int32 {
	t.Helper()
	lookups := new(atomic.Int32)
	resolver := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = resolver })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			header := make([]byte, 2+12) // the length of the message and the header before the question; see RFC 1035
			if _, err := io.ReadFull(server, header); err != nil {
				return
			}
			rest := make([]byte, int(binary.BigEndian.Uint16(header))-12)
			if _, err := io.ReadFull(server, rest); err != nil {
				return
			}
			question := rest[:bytes.IndexByte(rest, 0)+5]
			said := slices.Concat(header[2:4], []byte{0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0}, question) // the answer says that there is no such name
			if n := int(lookups.Add(1)); n <= len(addresses) {
				said[3], said[7] = 0x80, 1
				said = append(said, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				said = append(said, net.ParseIP(addresses[n-1]).To4()...)
			}
			server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(said))), said...))
		}()
		return client, nil
	}}
	return lookups
}

// Two kept listeners have the same configuration. The next launcher takes over both of them.
func TestKeptListener_NextLauncherTakesOverBothOfTwoOnPort0(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	web.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Address: "127.0.0.1:0"}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	startAnother(t, cfg, "").checkLine("ready").kill()
	h := launchWith(t, cfg).ready()
	addrs := h.Addrs("web")
	if addrs[0].String() == addrs[1].String() {
		t.Errorf("both listeners are on %v", addrs[0])
	}
}

// Two listeners with port 0 are kept. The new configuration has one of them with its actual port,
// and the other one still with port 0. Each takes over the socket that it had.
func TestKeptListener_OfTwoOnPort0OneIsFoundByItsActualPort(t *testing.T) {
	b := newBrood(t)
	web := kept(b.of(runners("web", 1)))
	web.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Address: "127.0.0.1:0"}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{web}}
	first := startAnother(t, cfg, "address").checkLine("ready")
	one, other := first.line(), first.line()
	first.kill()
	cfg.Groups[0].Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Address: one}}
	h := launchWith(t, cfg)
	testkit.Equal(t, "where it listens", fmt.Sprint(h.Addrs("web")), fmt.Sprint([]string{other, one}))
	h.waitForEnd("web-1")
	h.ready()
}
