package gateway

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADeadPeerIsNoticedAfterSevenMinutesWhetherOrNotItOwesAnAnswer(t *testing.T) {
	t.Parallel()
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, dialled.Close()) }()
	conn, err := ln.Accept()
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	option := func(name int) (v int) {
		require.NoError(t, rawConn(conn).Control(func(fd uintptr) {
			v, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, name)
		}))
		require.NoError(t, err)
		return v
	}
	idle, interval, count := option(syscall.TCP_KEEPIDLE), option(syscall.TCP_KEEPINTVL), option(syscall.TCP_KEEPCNT)
	require.Equal(t, []int{300, 30, 4}, []int{idle, interval, count})
	// Linux also gives up a silent peer by this limit, and then ignores the number of probes: with a
	// shorter one, a single lost probe would suffice.
	require.Equal(t, 1000*(idle+interval*count), option(tcpUserTimeout))
}
