//go:build !unix

package gateway

import (
	"net"
	"syscall"
)

func rawConn(net.Conn) syscall.RawConn { return nil }

func peek(syscall.RawConn) (bytes, end bool) { return false, false }
