// Package peer groups the peers of connections by network.
package peer

import "net/netip"

// Network returns the addresses from which one host may choose a peer's ("address:port"): the
// address itself, or its /64 of IPv6; zero without an address, such as at a Unix socket.
func Network(peer string) netip.Prefix {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
