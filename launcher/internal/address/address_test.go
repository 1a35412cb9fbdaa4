package address_test

import (
	"net"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/address"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type listen struct{ network, address string }

const (
	apart    = "apart"
	overlaps = "overlaps"
	same     = "same"
)

func relation(a, b address.Address) string {
	switch {
	case a.Same(b):
		return same
	case a.Overlaps(b):
		return overlaps
	}
	return apart
}

func resolve(t *testing.T, l listen) address.Address {
	t.Helper()
	a, err := address.Resolve(l.network, l.address)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Two addresses overlap if and only if the kernel refuses to listen on both.
func TestOverlaps_AgreesWithKernel(t *testing.T) {
	if ln, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("this host has no IPv6: ", err)
	} else {
		ln.Close()
	}
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ln.Close()
	dir := t.TempDir()
	tcp := func(host string) listen { return listen{"tcp", net.JoinHostPort(host, port)} }
	four := func(host string) listen { return listen{"tcp4", net.JoinHostPort(host, port)} }
	six := func(host string) listen { return listen{"tcp6", net.JoinHostPort(host, port)} }
	for _, c := range []struct {
		a, b listen
		want string
	}{
		{tcp(""), tcp(""), same},
		{tcp(""), tcp("0.0.0.0"), same},
		{tcp(""), tcp("::"), same},
		{tcp(""), tcp("127.0.0.1"), overlaps},
		{tcp("0.0.0.0"), tcp("127.0.0.1"), overlaps},
		{tcp("0.0.0.0"), tcp("localhost"), overlaps},
		{tcp("::"), tcp("127.0.0.1"), overlaps},
		{tcp("0.0.0.0"), tcp("::1"), overlaps},
		{tcp("127.0.0.1"), four("127.0.0.1"), same},
		{tcp("127.0.0.1"), four("localhost"), same},
		{tcp("127.0.0.1"), tcp("::ffff:127.0.0.1"), same},
		{tcp("127.0.0.1"), tcp("127.0.0.2"), apart},
		{tcp("127.0.0.1"), tcp("::1"), apart},
		{tcp("::1"), six("::1"), same},
		{tcp("localhost"), four("localhost"), same},
		{tcp("localhost"), six("::1"), apart},
		{tcp(""), tcp("localhost"), overlaps},
		{six(""), tcp("localhost"), apart},
		{tcp(""), four(""), overlaps},
		{tcp(""), six(""), overlaps},
		{four(""), four("0.0.0.0"), same},
		{four(""), six("::"), apart},
		{four(""), tcp("127.0.0.1"), overlaps},
		{four(""), tcp("::1"), apart},
		{six(""), tcp("127.0.0.1"), apart},
		{six(""), tcp("::1"), overlaps},
		{tcp("127.0.0.1"), listen{"tcp", "127.0.0.1:0"}, apart},
		{listen{"tcp", ":0"}, listen{"tcp", ":0"}, apart},
		{listen{"unix", dir + "/a"}, listen{"unix", dir + "/a"}, same},
		{listen{"unix", dir + "/a"}, listen{"unix", dir + "/./a"}, same},
		{listen{"unix", dir + "/a"}, listen{"unix", dir + "/b"}, apart},
		{listen{"unix", dir + "/a"}, tcp(""), apart},
	} {
		what := c.a.network + " " + c.a.address + " and " + c.b.network + " " + c.b.address
		a, b := resolve(t, c.a), resolve(t, c.b)
		testkit.Equal(t, what, relation(a, b), c.want)
		testkit.Equal(t, what+", the other way round", relation(b, a), c.want)
		if runtime.GOOS != "linux" { // on other systems, a listener on every address permits another one on a single address
			continue
		}
		first, err := net.Listen(c.a.network, c.a.address)
		if err != nil {
			t.Fatal(err)
		}
		second, err := net.Listen(c.b.network, c.b.address)
		testkit.Equal(t, what+": does the kernel allow both", err == nil, c.want == apart)
		if err == nil {
			second.Close()
		}
		first.Close()
	}
}

func TestAddressOf_ReturnsActualPortOfListener(t *testing.T) {
	for _, l := range []listen{{"tcp", ":0"}, {"tcp", "127.0.0.1:0"}, {"unix", filepath.Join(t.TempDir(), "s")}} {
		ln, err := net.Listen(l.network, l.address)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		actual := address.Of(l.network, ln)
		testkit.Equal(t, l.address, relation(actual, resolve(t, listen{l.network, ln.Addr().String()})), same)
		testkit.Equal(t, l.address+": is it any port", resolve(t, l).AnyPort(), l.network == "tcp")
		testkit.Equal(t, l.address+": does the listener have any port", actual.AnyPort(), false)
	}
}

// Parse compares host names as text.
func TestParse_DoesNotResolveHostNames(t *testing.T) {
	for _, c := range []struct {
		a, b listen
		want string
	}{
		{listen{"tcp", "127.0.0.1:80"}, listen{"tcp", ":80"}, overlaps},
		{listen{"tcp", "[::1]:80"}, listen{"tcp", "[::1]:80"}, same},
		{listen{"tcp", "no.such.host:80"}, listen{"tcp", "no.such.host:80"}, same},
		{listen{"tcp", "no.such.host:80"}, listen{"tcp", "No.Such.Host:http"}, same},
		{listen{"tcp", "no.such.host:80"}, listen{"tcp", "no.such.host:81"}, apart},
		{listen{"tcp", "no.such.host:0"}, listen{"tcp", "no.such.host:0"}, apart},
		{listen{"tcp", "no.such.host:80"}, listen{"tcp", "nor.such.host:80"}, apart},
		{listen{"tcp4", "no.such.host:80"}, listen{"tcp4", "no.such.host:80"}, same},
		{listen{"tcp6", "no.such.host:80"}, listen{"tcp6", "no.such.host:80"}, same},
		{listen{"tcp", "no.such.host:80"}, listen{"tcp4", "No.Such.Host:80"}, overlaps},
		{listen{"tcp", "no.such.host:80"}, listen{"tcp4", "no.such.host:81"}, apart},
		{listen{"tcp", "no.such.host:80"}, listen{"tcp4", "nor.such.host:80"}, apart},
		{listen{"tcp", "no.such.host:80"}, listen{"tcp6", "no.such.host:80"}, apart}, // a name can mean different addresses: localhost is 127.0.0.1 with tcp, and ::1 with tcp6
		{listen{"tcp4", "no.such.host:80"}, listen{"tcp6", "no.such.host:80"}, apart},
		{listen{"tcp", ":80"}, listen{"tcp", "no.such.host:80"}, overlaps},
		{listen{"tcp", "0.0.0.0:80"}, listen{"tcp", "no.such.host:80"}, overlaps},
		{listen{"tcp", "[::]:80"}, listen{"tcp4", "no.such.host:80"}, overlaps},
		{listen{"tcp", ":80"}, listen{"tcp6", "no.such.host:80"}, overlaps},
		{listen{"tcp", ":80"}, listen{"tcp", "no.such.host:81"}, apart},
		{listen{"tcp", ":0"}, listen{"tcp", "no.such.host:0"}, apart},
		{listen{"tcp4", ":80"}, listen{"tcp4", "no.such.host:80"}, overlaps},
		{listen{"tcp4", "0.0.0.0:80"}, listen{"tcp6", "no.such.host:80"}, apart},
		{listen{"tcp4", ":80"}, listen{"tcp", "no.such.host:80"}, apart}, // the host might have no IPv4 address
		{listen{"tcp6", ":80"}, listen{"tcp6", "no.such.host:80"}, overlaps},
		{listen{"tcp6", "[::]:80"}, listen{"tcp", "no.such.host:80"}, apart},
		{listen{"tcp6", ":80"}, listen{"tcp4", "no.such.host:80"}, apart},
		{listen{"tcp", "127.0.0.1:80"}, listen{"tcp4", "localhost:80"}, apart},
		{listen{"tcp", "localhost:80"}, listen{"tcp", "127.0.0.1:80"}, apart},
		{listen{"tcp", "no.such.host:80"}, listen{"unix", "/a"}, apart},
	} {
		what := c.a.network + " " + c.a.address + " and " + c.b.network + " " + c.b.address
		var all []address.Address
		for _, l := range []listen{c.a, c.b} {
			a, err := address.Parse(l.network, l.address)
			if err != nil {
				t.Fatalf("%s: %v", l.address, err)
			}
			all = append(all, a)
		}
		testkit.Equal(t, what, relation(all[0], all[1]), c.want)
		testkit.Equal(t, what+", the other way round", relation(all[1], all[0]), c.want)
	}
	for _, text := range []string{"", "80", "127.0.0.1:no-such-port", "no.such.host:no-such-port", "127.0.0.1:70000"} {
		if a, err := address.Parse("tcp", text); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", text, a)
		}
	}
	var none address.Address
	testkit.Equal(t, "two zero values", relation(none, none), apart)
}
