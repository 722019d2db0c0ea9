package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// patience bounds what a test waits for an event; nothing ever takes so long.
const patience = 30 * time.Second

func TestMain(m *testing.M) { redistest.Main(m) }

// replica is a running service.
type replica struct {
	addr  string
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, server *redistest.Server) *replica {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{addr: ln.Addr().String(), stop: cancel, ended: make(chan error, 1)}
	go func() {
		r.ended <- serve(ctx, ln, server.Options())
		close(r.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// connect is a device that has sent its id and asked for another, and got its answer.
func (r *replica) connect(t *testing.T, id string) net.Conn {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", r.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(conn, "%s\nunheard-of\n", id)
	require.NoError(t, err)
	answer, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "nobody has unheard-of\n", answer)
	return conn
}

func TestDevicesAreFoundWhereTheyAreAndNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, keys := server.Client(), registry.Layout{}
	owner := func(id string) string { return rdb.HGet(t.Context(), keys.Registry(), id).Val() }
	until := func(what func() bool) {
		t.Helper()
		require.Eventually(t, what, patience, 5*time.Millisecond)
	}

	first := start(t, server)
	first.connect(t, "device-1")
	until(func() bool { return owner("device-1") != "" })
	second := start(t, server)
	gone := second.connect(t, "device-2")
	until(func() bool { return owner("device-2") != "" })
	require.NotEqual(t, owner("device-1"), owner("device-2"))
	second.connect(t, "device-1") // it moves
	until(func() bool { return owner("device-1") == owner("device-2") })

	require.NoError(t, gone.Close())
	until(func() bool { return owner("device-2") == "" })
	first.stop()
	require.NoError(t, <-first.ended)
	require.NotEmpty(t, owner("device-1"), "its former owner takes nothing along")
	second.stop()
	require.NoError(t, <-second.ended)
	require.Empty(t, owner("device-1"))
	until(func() bool { return rdb.Exists(t.Context(), keys.Roster(), keys.Lease()).Val() == 0 })
}

func TestTheREADMEShowsThisCode(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)

	var shown, marked []string
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		shown = append(shown, block[1])
	}
	for _, region := range regexp.MustCompile(`(?s)// README: \w+\n(.*?)\t// README: end`).FindAllStringSubmatch(string(code), -1) {
		marked = append(marked, strings.TrimPrefix(strings.ReplaceAll("\n"+region[1], "\n\t", "\n"), "\n"))
	}
	require.Len(t, marked, 3)
	require.Equal(t, marked, shown)
}
