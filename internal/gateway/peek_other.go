//go:build !unix

package gateway

import (
	"net"
	"syscall"
)

func rawConn(net.Conn) syscall.RawConn { return nil }

// peek cannot look here without reading: nothing has arrived, for all that is known.
func peek(syscall.RawConn) (bytes, end bool) { return false, false }
