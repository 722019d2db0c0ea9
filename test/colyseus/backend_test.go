//go:build colyseus

package colyseus_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// patience is how long a test waits for what has to happen. It is no measure of anything.
const patience = 2 * time.Minute

// A version is one Colyseus, such as 0.15.
type version string

// Of what the versions do in different ways, this is all that the tests rely on.
func (v version) keepsNodes() bool       { return v != "0.18" } // the set colyseus:nodes
func (v version) restoresListings() bool { return v == "0.18" } // of a process that was swept

// forVersions runs a test on each version that scripts/colyseus has fetched.
func forVersions(t *testing.T, test func(t *testing.T, v version)) {
	t.Parallel()
	folder := os.Getenv("COLYSEUS")
	require.NotEmpty(t, folder, "COLYSEUS has to name the folder that scripts/colyseus prints")
	locks, err := filepath.Glob("*/package-lock.json")
	require.NoError(t, err)
	require.Len(t, locks, 3)
	for _, lock := range locks {
		v := version(filepath.Dir(lock))
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

// A backend is one process of the game: server.mjs on one Colyseus.
type backend struct {
	t    *testing.T
	p    *process.Process
	name string // Colyseus' processId
	said chan struct{}

	mu       sync.Mutex // of what follows
	last     int        // request
	answers  map[int]answer
	creating map[string]string // user -> room that is in its onCreate
	changed  chan struct{}     // closed and made anew with each line
}

// answer is a line that a backend writes.
type answer struct {
	ID        int             `json:"id"`
	OK        json.RawMessage `json:"ok"`
	Error     string          `json:"error"`
	Event     string          `json:"event"`
	User      string          `json:"user"`
	RoomID    string          `json:"roomId"`
	ProcessID string          `json:"processId"`
}

// startBackend starts a process of the game and waits until it serves.
func startBackend(t *testing.T, v version, server *redistest.Server) *backend {
	t.Helper()
	folder := filepath.Join(os.Getenv("COLYSEUS"), string(v))
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	cmd := exec.Command("node", "server.mjs", folder, port)
	// Colyseus waits so long for another process before it calls that one gone, and looks so often
	// whether it was called gone itself.
	cmd.Env = append(os.Environ(), "NODE_ENV=production",
		"COLYSEUS_PRESENCE_SHORT_TIMEOUT=1000", "COLYSEUS_SWEPT_CHECK_INTERVAL=500")
	log := filepath.Join(t.TempDir(), "node.log")
	p, err := process.Start(cmd, process.Options{Talk: true, Log: log})
	require.NoError(t, err)
	b := &backend{
		t: t, p: p, said: make(chan struct{}),
		answers: map[int]answer{}, creating: map[string]string{}, changed: make(chan struct{}),
	}
	go b.listen()
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			t.Logf("process %s of Colyseus %s wrote:\n%s", b.name, v, p.Log())
		}
	})
	b.await("that it is ready", func() bool { return b.name != "" })
	return b
}

func (b *backend) listen() {
	defer close(b.said)
	for b.p.Out.Scan() {
		var a answer
		if json.Unmarshal(b.p.Out.Bytes(), &a) != nil {
			continue // a library's own words
		}
		b.mu.Lock()
		switch a.Event {
		case "ready":
			b.name = a.ProcessID
		case "creating":
			b.creating[a.User] = a.RoomID
		default:
			b.answers[a.ID] = a
		}
		close(b.changed)
		b.changed = make(chan struct{})
		b.mu.Unlock()
	}
}

// await waits until the process has written what it takes for done to be true.
func (b *backend) await(what string, done func() bool) {
	b.t.Helper()
	late := time.After(patience)
	for {
		b.mu.Lock()
		is, changed := done(), b.changed
		b.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-b.said:
			require.Fail(b.t, "the process ended", "waiting for %s", what)
		case <-late:
			require.Fail(b.t, "the process does not say it", "waiting for %s", what)
		}
	}
}

// args of an operation; see server.mjs.
type args map[string]any

// begin sends a request. The answer is read by wait.
func (b *backend) begin(op string, a args) (wait func() answer) {
	b.t.Helper()
	b.mu.Lock()
	b.last++
	id := b.last
	b.mu.Unlock()
	request := args{"id": id, "op": op}
	maps.Copy(request, a)
	line, err := json.Marshal(request)
	require.NoError(b.t, err)
	_, err = fmt.Fprintf(b.p.In, "%s\n", line)
	require.NoError(b.t, err)
	return func() (got answer) {
		b.t.Helper()
		b.await("the answer of "+op, func() (ok bool) { got, ok = b.answers[id]; return ok })
		return got
	}
}

// do sends a request, and returns the answer of one that has to succeed.
func (b *backend) do(op string, a args) (value string) {
	b.t.Helper()
	got := b.begin(op, a)()
	require.Empty(b.t, got.Error)
	_ = json.Unmarshal(got.OK, &value) // most answers are no text
	return value
}

// create makes a room for a user, and returns its id when it is listed.
func (b *backend) create(user string) (room string) {
	b.t.Helper()
	return b.do("create", args{"user": user})
}

// hold makes a room that stays in its onCreate until open is called, which returns when it is
// listed.
func (b *backend) hold(user string, a args) (room string, open func() answer) {
	b.t.Helper()
	request := args{"user": user, "hold": true}
	maps.Copy(request, a)
	listed := b.begin("create", request)
	b.await("onCreate", func() bool { room = b.creating[user]; return room != "" })
	return room, func() answer {
		b.t.Helper()
		b.do("open", args{"user": user})
		return listed()
	}
}

// rooms are all that live in the process, also those in their onCreate, in order.
func (b *backend) rooms() (rooms []string) {
	b.t.Helper()
	require.NoError(b.t, json.Unmarshal(b.begin("rooms", nil)().OK, &rooms))
	slices.Sort(rooms)
	return rooms
}

// kill ends the process by SIGKILL.
func (b *backend) kill() {
	b.p.Kill()
	<-b.said
}

func (b *backend) stop() { b.t.Helper(); require.NoError(b.t, b.p.Stop()) }
func (b *backend) cont() { b.t.Helper(); require.NoError(b.t, b.p.Cont()) }
