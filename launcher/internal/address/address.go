// Package address compares network addresses. It finds out which two addresses Linux does not allow
// to listen on at the same time.
package address

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"
)

// An Address is what a listener occupies on this machine. The zero value overlaps with no address.
// An address with port 0 overlaps with no address either, because each listener on it gets another
// port.
//
// As in package net, with network "tcp" an empty host, 0.0.0.0 and :: all mean every address of
// both families. With "tcp4" and "tcp6" they mean every address of one family. A host name means
// one address: with "tcp" an IPv4 address if the host has one, and otherwise an IPv6 address.
type Address struct {
	path   string     // the path of a unix socket
	name   string     // a host name that has not been resolved
	port   uint16     // the port of a TCP address
	ip     netip.Addr // the zero Addr if the listener accepts on every address, or if name is set
	v4, v6 bool       // whether the address occupies IPv4, and IPv6; if name is set, whether it may do so
}

// Parse returns an address without resolving its host. A host name overlaps
//
//   - with the same name and the same network. "tcp" and "tcp4" count as the same network, because
//     with both the name means the IPv4 address, if the host has one. With "tcp6" it can mean
//     another address.
//   - with a listener on every address, if that one occupies all families to which the name may
//     resolve. So 0.0.0.0 overlaps with a name only if the network of the name is "tcp4".
//
// Further overlaps are known only after Resolve.
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

// Resolve is like Parse, but resolves host names, as net.Listen does.
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

// Of returns the address of a listener, with its actual port.
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
	if abs, err := filepath.Abs(path); err == nil && !strings.HasPrefix(path, "@") { // a path that begins with @ is abstract and has no file
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

// AnyPort reports whether a is a TCP address with port 0.
func (a Address) AnyPort() bool { return a.path == "" && a.port == 0 }

// Same reports whether a and b mean the same address. If so, a listener on the address a can be
// used where one on the address b is wanted.
func (a Address) Same(b Address) bool { return a == b && a.Overlaps(b) }

// Overlaps reports whether a and b exclude each other, so that only one of them can be listened on.
// For host names that were parsed and not resolved, the result can be false although the addresses
// overlap.
func (a Address) Overlaps(b Address) bool {
	switch {
	case a.path != "" || b.path != "":
		return a.path == b.path
	case a.port == 0 || a.port != b.port:
		return false
	case a.name != "" && b.name != "":
		// With "tcp" as well as with "tcp4", a host name stands for an IPv4 address of the host if
		// it has one.
		return a.name == b.name && a.v4 == b.v4
	case a.name != "":
		return b.covers(a)
	case b.name != "":
		return a.covers(b)
	case a.ip.IsValid() && b.ip.IsValid():
		return a.ip == b.ip
	}
	return a.v4 && b.v4 || a.v6 && b.v6
}

// covers reports whether a stands for all addresses of the machine, in each address family that
// name may resolve to.
func (a Address) covers(name Address) bool {
	return !a.ip.IsValid() && (a.v4 || !name.v4) && (a.v6 || !name.v6)
}
