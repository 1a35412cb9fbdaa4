package debugpage

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// forwardingHeaders are the request headers that proxies add. A request that has one of them can
// come from any machine, although its TCP connection comes from this machine: from a reverse proxy
// on the same host, or from a sidecar in the same pod.
var forwardingHeaders = []string{
	"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "X-Client-Ip",
	"True-Client-Ip", "Cf-Connecting-Ip", "X-Envoy-External-Address", "Fastly-Client-Ip", "X-Cluster-Client-Ip",
	"X-Original-Forwarded-For",
}

const (
	offHint = "This page is off, because a proxy on this machine could show it to any client. Turn it on in one of these ways:\n\n" +
		"    httpdrain.Debug(s, httpdrain.WithToken(token))   for clients that send the token\n" +
		"    httpdrain.Debug(s, httpdrain.LocalOnly())        on a listener of its own, to which no proxy forwards\n" +
		"    httpdrain.Debug(s, httpdrain.AllowRemote(hosts)) behind a handler or proxy that authenticates its clients"
	serviceHint = "This page is off on the listener of a service (one that httpdrain.Serve serves), because a proxy on this machine " +
		"could show it to any client. Serve it on a listener of its own, to which no proxy forwards:\n\n" +
		"    admin, err := net.Listen(\"tcp\", \"localhost:9090\")\n" +
		"    ...\n" +
		"    go http.Serve(admin, httpdrain.Debug(s, httpdrain.LocalOnly()))\n\n" +
		"Or let clients send a token:\n\n" +
		"    httpdrain.Debug(s, httpdrain.WithToken(token))"
	tunnelHint = "\nOpen it on the machine itself, or through a tunnel that ends there:\n\n" +
		"    kubectl port-forward POD 9090        and then http://localhost:9090\n" +
		"    ssh -L 9090:localhost:9090 HOST      and then http://localhost:9090\n"
	allowHint = "\nTo permit other clients, behind a handler that authenticates them: httpdrain.Debug(s, httpdrain.AllowRemote("
)

// refusal returns the reason why r must be refused, or "" if r is permitted.
func (o *Options) refusal(r *http.Request) string {
	switch {
	case o.WithToken:
		return o.tokenRefusal(r)
	case o.AllowRemote:
		return o.hostRefusal(r)
	case o.LocalOnly && o.IsOfService != nil && o.IsOfService(r):
		return serviceHint
	case o.LocalOnly:
		return localRefusal(r)
	}
	return offHint
}

func (o *Options) tokenRefusal(r *http.Request) string {
	if o.Token == "" {
		return "This page is off, because its token is empty."
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		_, token, _ = r.BasicAuth()
	}
	if subtle.ConstantTimeCompare([]byte(token), []byte(o.Token)) == 1 {
		return ""
	}
	return "This page answers clients that send its token: as the password, with any user name, or in the header Authorization: Bearer."
}

func (o *Options) hostRefusal(r *http.Request) string {
	name, isAddress := splitHost(r.Host)
	if isAddress || name == "localhost" || slices.Contains(o.Hosts, "*") ||
		slices.ContainsFunc(o.Hosts, func(h string) bool { return strings.EqualFold(h, name) }) {
		return ""
	}
	quoted := strconv.Quote(printable(name, 80))
	return "This page does not answer to the host name " + quoted + "; this may be an attack by DNS rebinding.\n" +
		"\nUse the IP address, or permit the name: httpdrain.AllowRemote(" + quoted + ")"
}

func localRefusal(r *http.Request) string {
	if !isLocal(r) {
		return "This page answers the local machine only; this request comes from " + printable(r.RemoteAddr, 80) + ".\n" +
			tunnelHint + allowHint + "…))"
	}
	// nginx adds no header by default, and replaces Host by the address of the server. But before
	// version 1.29.7 it uses HTTP/1.0, which no browser uses. So a request with HTTP/1.0 is
	// refused.
	if !r.ProtoAtLeast(1, 1) {
		return "This page answers the local machine only; this request uses HTTP/1.0, so it may have been forwarded by a proxy.\n" +
			tunnelHint + allowHint + "…))"
	}
	for _, name := range forwardingHeaders {
		if len(r.Header.Values(name)) != 0 {
			return "This page answers the local machine only; this request was forwarded by a proxy (it has the header " +
				name + ").\n" + tunnelHint + allowHint + "…))"
		}
	}
	name, isAddress := splitHost(r.Host)
	if isAddress && netip.MustParseAddr(name).Unmap().IsLoopback() || name == "localhost" {
		return ""
	}
	quoted := strconv.Quote(printable(name, 80))
	return "This page was requested under the host name " + quoted +
		", which is not the local machine's; this may be an attack by DNS rebinding.\n" +
		"\nUse localhost, 127.0.0.1 or [::1] instead.\n" + allowHint + quoted + "))"
}

// isLocal reports whether the request r came over a connection that was opened on this machine.
func isLocal(r *http.Request) bool {
	if addr, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return addr.Addr().Unmap().IsLoopback()
	}
	_, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return unix
}

// splitHost returns the host of a Host header in lower case, without the port, and whether it is an
// IP address.
func splitHost(host string) (name string, isAddress bool) {
	name = host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = host[1 : len(host)-1]
	}
	_, err := netip.ParseAddr(name)
	return strings.ToLower(name), err == nil
}
