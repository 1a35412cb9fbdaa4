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
// families. "tcp4" and "tcp6" are for every one of one family. A host that is a name is one address: with "tcp" of IPv4, where it has such
// a one, and of IPv6 else.
type Address struct {
	path   string     // of a unix socket
	name   string     // of a host that nobody has looked up
	port   uint16     // of TCP
	ip     netip.Addr // invalid: every one, or with a name, one that is not known
	v4, v6 bool       // the families: all of them, or with a name, those that it can be of
}

// Parse returns what can be known of an address without asking anybody, and no more is said of it. A host that is a name overlaps
//
//   - with the same name, of the same network, and of "tcp" and "tcp4", which mean the same address where both mean one: "tcp" and
//     "tcp6" need not;
//   - with every address of all families that it can be of: one of IPv4 only ("tcp4") overlaps with names of "tcp4" only.
//
// With what else it does, only Resolve knows.
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
			return Address{name: strings.ToLower(host), port: uint16(port), v4: network != "tcp6", v6: network != "tcp4"}, nil
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

// AnyPort reports whether it is a port 0, of TCP.
func (a Address) AnyPort() bool { return a.path == "" && a.port == 0 }

// Same reports whether a listener on one is one on the other.
func (a Address) Same(b Address) bool { return a == b && a.Overlaps(b) }

// Overlaps reports whether only one of them can be had. Of what [Parse] has returned for a name, it may be that more overlaps.
func (a Address) Overlaps(b Address) bool {
	switch {
	case a.path != "" || b.path != "":
		return a.path == b.path
	case a.port == 0 || a.port != b.port:
		return false
	case a.name != "" && b.name != "":
		return a.name == b.name && a.v4 == b.v4 // who can be of IPv4 is, where the name is
	case a.name != "":
		return b.covers(a)
	case b.name != "":
		return a.covers(b)
	case a.ip.IsValid() && b.ip.IsValid():
		return a.ip == b.ip
	}
	return a.v4 && b.v4 || a.v6 && b.v6
}

// covers reports whether this is every address of all families that a name can be of.
func (a Address) covers(name Address) bool {
	return !a.ip.IsValid() && (a.v4 || !name.v4) && (a.v6 || !name.v6)
}
