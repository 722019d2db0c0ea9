//go:build unix

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// rawDevice is a device's socket as a bare descriptor, which uses no heap in this process: only
// the replica's end is measured.
type rawDevice int

func dialRaw(b *testing.B, addr *net.TCPAddr) rawDevice {
	b.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(b, err)
	require.NoError(b, syscall.Connect(fd, &syscall.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}))
	return rawDevice(fd)
}

func (d rawDevice) Read(p []byte) (int, error) {
	n, err := syscall.Read(int(d), p)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return n, err
}

// exchange sends p and waits for an answer of that many bytes.
func (d rawDevice) exchange(b *testing.B, p []byte, answer int) {
	b.Helper()
	_, err := syscall.Write(int(d), p)
	require.NoError(b, err)
	_, err = io.ReadFull(d, make([]byte, answer))
	require.NoError(b, err)
}

// BenchmarkMemoryOfAConnection measures a replica's memory per device that is connected,
// registered, has sent frames and is now silent, like most devices: heap and stacks, before and
// after a collection. ROLLCALL_CONNECTIONS sets their number; the default fits the usual
// descriptor limits.
func BenchmarkMemoryOfAConnection(b *testing.B) {
	count := 4000
	if s := os.Getenv("ROLLCALL_CONNECTIONS"); s != "" {
		var err error
		count, err = strconv.Atoi(s)
		require.NoError(b, err)
	}
	server := redistest.Start(b)
	p := serving(b, "--redis-url=redis://"+server.Addr())
	addr, err := net.ResolveTCPAddr("tcp", p.devices)
	require.NoError(b, err)
	frame := teltonika.AppendFrame(nil, teltonika.Codec8E, sim.NewTrack(1).Next(10)...)

	collect := func() (m runtime.MemStats) {
		for range 3 { // stacks shrink by half at each
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m
	}
	sockets := make([]rawDevice, count)
	defer func() {
		for _, d := range sockets {
			_ = syscall.Close(int(d))
		}
	}()
	before := collect()
	const speakers = 50
	failed := make(chan bool, speakers)
	for s := range speakers {
		go func() {
			ok := false
			defer func() { failed <- !ok }()
			for i := s; i < count; i += speakers {
				hello, err := teltonika.AppendIMEI(nil, fmt.Sprintf("%015d", i))
				require.NoError(b, err)
				d := dialRaw(b, addr)
				sockets[i] = d
				d.exchange(b, hello, 1)
				for range 3 {
					d.exchange(b, frame, 4)
				}
			}
			ok = true
		}()
	}
	for range speakers {
		require.False(b, <-failed)
	}
	var asIs runtime.MemStats
	runtime.ReadMemStats(&asIs)
	after := collect()
	per := func(now, then uint64) float64 { return float64(int64(now-then)) / float64(count) }
	b.ReportMetric(per(asIs.HeapInuse+asIs.StackInuse, before.HeapInuse+before.StackInuse), "B/conn")
	b.ReportMetric(per(asIs.StackInuse, before.StackInuse), "stack-B/conn")
	b.ReportMetric(per(after.HeapInuse+after.StackInuse, before.HeapInuse+before.StackInuse), "collected-B/conn")
	b.ReportMetric(per(after.StackInuse, before.StackInuse), "collected-stack-B/conn")
	b.ReportMetric(0, "ns/op")
}
