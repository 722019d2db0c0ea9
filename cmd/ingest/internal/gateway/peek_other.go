//go:build !unix

package gateway

import (
	"net"
	"syscall"
)

func rawConn(net.Conn) syscall.RawConn { return nil }

// On this system nobody can look without reading.
func peek(syscall.RawConn) (bytes, end bool) { return false, false }
