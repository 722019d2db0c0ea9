package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/internal/process"
)

func TestClientsWithoutATokenLeaveDescriptorsForTheStores(t *testing.T) {
	s := own(t)
	args := append([]string{"-c", `ulimit -n 200 && exec "$0" "$@"`, os.Args[0]},
		s.args("--http-addr=127.0.0.1:0", "--log-format=json")...)
	cmd := exec.Command("sh", args...)
	cmd.Env = []string{asMain + "=1", "GOCOVERDIR=" + t.TempDir()}
	child, err := process.Start(cmd, process.Options{Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	t.Cleanup(child.Kill)
	p := &running{Program: &programtest.Program{T: t}}
	require.Eventually(t, func() bool {
		p.HTTP = child.Said("serving HTTP", "addr")
		return p.HTTP != ""
	}, patience, 5*time.Millisecond, "%s", child.Log())
	open := 0
	for i := range 300 {
		conn, err := net.DialTimeout("tcp", p.HTTP, patience)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "POST /api/v1/mitra/heartbeat HT"[:i%30]) // or it was closed already
		descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", child.PID()))
		require.NoError(t, err)
		open = max(open, len(descriptors))
	}
	require.Less(t, open, 150, "a quarter is for connections")
	// It has to dial anew.
	require.NoError(t, s.server.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	p.Await(func() bool {
		resp, _ := p.Ask(asService, "GET", "/api/v1/available", "")
		return resp.StatusCode == 200 && resp.Header.Get("Availability-Source") == "valkey"
	}, "Redis answers")
}
