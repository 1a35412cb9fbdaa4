// Package address tells addresses apart of which only one can be listened on, on Linux at least.
package address

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"
)

// An Address is what a listener takes of this machine. The zero value is nothing: it overlaps with no other one, and neither does
// one with port 0, which is another one each time.
//
// As package net has it, a host that is left out, 0.0.0.0 and :: are all the same with network "tcp": every address of both
// families. "tcp4" and "tcp6" are for every one of one family.
type Address struct {
	path   string     // of a unix socket
	name   string     // network and host, where nobody has looked up the host: it has neither ip nor families
	port   uint16     // of TCP
	ip     netip.Addr // invalid: every one
	v4, v6 bool       // the families
}

// Parse returns what can be known of an address without asking anybody. A host that is a name overlaps with the same one, and it
// takes Resolve to know with what else.
func Parse(network, address string) (Address, error) {
	if network == "unix" {
		return unix(address), nil
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return Address{}, err
	}
	if host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			port, err := net.LookupPort(network, service)
			if err != nil {
				return Address{}, err
			}
			return Address{name: network + " " + strings.ToLower(host), port: uint16(port)}, nil
		}
	}
	return Resolve(network, address)
}

// Resolve is Parse, and looks up names as package net does to listen.
func Resolve(network, address string) (Address, error) {
	if network == "unix" {
		return unix(address), nil
	}
	tcp, err := net.ResolveTCPAddr(network, address)
	if err != nil {
		return Address{}, err
	}
	return of(network, tcp), nil
}

// Of returns the Address of a listener, with the port that it has got.
func Of(network string, ln net.Listener) Address {
	switch a := ln.Addr().(type) {
	case *net.TCPAddr:
		return of(network, a)
	case *net.UnixAddr:
		return unix(a.Name)
	}
	return Address{}
}

func unix(path string) Address {
	if abs, err := filepath.Abs(path); err == nil && !strings.HasPrefix(path, "@") { // which is no file
		path = abs
	}
	return Address{path: path}
}

func of(network string, tcp *net.TCPAddr) Address {
	a := Address{port: uint16(tcp.Port), v4: network != "tcp6", v6: network != "tcp4"}
	if len(tcp.IP) > 0 && !tcp.IP.IsUnspecified() {
		a.ip = tcp.AddrPort().Addr().Unmap()
		a.v4, a.v6 = a.ip.Is4(), a.ip.Is6()
	}
	return a
}

// Same reports whether a listener on one is one on the other.
func (a Address) Same(b Address) bool { return a == b && a.Overlaps(b) }

// Overlaps reports whether only one of them can be had.
func (a Address) Overlaps(b Address) bool {
	switch {
	case a.path != "" || b.path != "":
		return a.path == b.path
	case a.port == 0 || a.port != b.port:
		return false
	case a.name != "" || b.name != "":
		return a.name == b.name
	case a.ip.IsValid() && b.ip.IsValid():
		return a.ip == b.ip
	}
	return a.v4 && b.v4 || a.v6 && b.v6
}
