package httpdrain

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A debugAccess says who may look. It is about who can have sent a request, not about who they are.
type debugAccess struct {
	remote bool
	hosts  []string
}

// forwarding is what proxies add. A request with any of it comes from the local machine only as far as TCP knows: the
// proxy next door, or the sidecar in the same pod, speaks for the whole world.
var forwarding = []string{
	"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "X-Envoy-External-Address",
}

// refuses returns why r is refused, empty if it is not.
func (a *debugAccess) refuses(r *http.Request) string {
	const tunnel = "\nLook from the machine itself, or through a tunnel that ends there:\n\n" +
		"    kubectl port-forward POD 8080        and then http://localhost:8080" + "\n" +
		"    ssh -L 8080:localhost:8080 HOST      and then http://localhost:8080" + "\n"
	const open = "\nTo answer others too, behind something that asks who they are: httpdrain.Debug(s, httpdrain.AllowRemote("
	if !a.remote {
		if !local(r) {
			return "This page answers the local machine only, and " + printable(r.RemoteAddr, 80) + " is not it.\n" + tunnel + open + "…))"
		}
		for _, name := range forwarding {
			if len(r.Header.Values(name)) != 0 {
				return "This page answers the local machine only, and this request was passed on by a proxy (it has the header " +
					name + ").\n" + tunnel + open + "…))"
			}
		}
	}
	name, address := hostOf(r.Host)
	switch {
	case address && (a.remote || netip.MustParseAddr(name).Unmap().IsLoopback()), name == "localhost":
		return ""
	case a.remote && (slices.Contains(a.hosts, "*") ||
		slices.ContainsFunc(a.hosts, func(h string) bool { return strings.EqualFold(h, name) })):
		return ""
	}
	named := strconv.Quote(printable(name, 80))
	if a.remote {
		return "This page was asked for under a name that it does not go by, " + named + ": that is what DNS rebinding looks like.\n" +
			"\nAsk by address, or add the name: httpdrain.AllowRemote(" + named + ")"
	}
	return "This page was asked for under a name that is not the local machine's, " + named +
		": that is what DNS rebinding looks like.\n" + "\nAsk for localhost, 127.0.0.1 or [::1] instead.\n" + open + named + "))"
}

// local reports whether the connection of r begins on this machine.
func local(r *http.Request) bool {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return at.Addr().Unmap().IsLoopback()
	}
	_, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return unix
}

// hostOf returns a Host header without the port, and whether it is an address.
func hostOf(host string) (name string, address bool) {
	name = host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = host[1 : len(host)-1]
	}
	_, err := netip.ParseAddr(name)
	return strings.ToLower(name), err == nil
}
