//go:build colyseus

package colyseus_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/orphan/mongodb/mongotest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// buildProgram builds cmd/cleanup, and writes the shipped rules with a grace that a test can wait
// for.
func buildProgram(t *testing.T) (program, file string) {
	t.Helper()
	dir := t.TempDir()
	program, file = filepath.Join(dir, "cleanup"), filepath.Join(dir, "rules.yaml")
	out, err := exec.Command("go", "build", "-o", program, "../../cmd/cleanup").CombinedOutput()
	require.NoError(t, err, "%s", out)
	pack, _ := rules.Pack("colyseus")
	text := strings.NewReplacer("grace: 60s", "grace: 1s", "{from_ttl: 3600s, over: 120s}",
		"{from_ttl: 3300s, over: 1s}").Replace(string(pack))
	require.NotEqual(t, string(pack), text)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return program, file
}

// stats is what GET /api/v1/stats answers.
type stats struct {
	CumulativeStats struct {
		ExpiredReservations, StaleQueueEntries, OrphanedBotStates int
	} `json:"cumulativeStats"`
}

// The program itself, in two replicas, with the shipped rules and a database: one replica is killed
// while both see rooms come and go.
func TestTheProgramBesideAGame(t *testing.T) {
	t.Parallel()
	program, rules := buildProgram(t)
	g := newGame(t, "0.18")
	gone, ctx := g.record(), t.Context()
	db := mongotest.Database(t)
	over, ongoing := bson.NewObjectID(), bson.NewObjectID()
	_, err := db.Collection("matches").InsertMany(ctx, []any{
		bson.M{"_id": over, "status": "finished", "endedAt": time.Now().Add(-2 * time.Hour)},
		bson.M{"_id": ongoing, "status": "playing"},
	})
	require.NoError(t, err)
	for _, id := range []bson.ObjectID{over, ongoing} {
		require.NoError(t, g.rdb.Set(ctx, "match:"+id.Hex(), "{}", time.Hour).Err())
		require.NoError(t, g.rdb.Set(ctx, "match:"+id.Hex()+":ratings", "{}", time.Hour).Err())
	}

	start := func() *process.Process {
		t.Helper()
		cmd := exec.Command(program, "--redis-url=redis://"+g.server.Addr(), "--rules="+rules,
			"--http-addr=127.0.0.1:0", "--log-format=json", "--cleanup-interval=500ms", "--cleanup-lease-ttl=2s",
			"--heartbeat-interval=500ms", "--heartbeat-ttl=3s")
		cmd.Env = append(os.Environ(), "MONGODB_URI="+db.URI)
		p, err := process.Start(cmd, process.Options{Log: filepath.Join(t.TempDir(), "cleanup.log")})
		require.NoError(t, err)
		t.Cleanup(func() {
			p.Kill()
			if t.Failed() {
				t.Logf("cleanup, pid %d, wrote:\n%s", p.PID(), p.Log())
			}
		})
		return p
	}
	leader := start()
	g.eventually("the first leads", func() bool { return leader.Said("lease acquired", "epoch") != "" })
	other := start()

	one, two := g.start(), g.start()
	room, frozen := one.create("ann"), two.create("fay")
	one.do("join", args{"user": "ann", "roomId": room})
	one.do("dispose", args{"roomId": one.create("bob")})
	g.old("ann", "fay", "bob")
	goes := func(key string) {
		t.Helper()
		g.eventually(key+" goes", func() bool { return g.rdb.Exists(ctx, key).Val() == 0 })
	}
	goes(reservation + "bob")
	goes("match:" + over.Hex())

	// The leader dies while a process is stopped, and swept by another one.
	two.stop()
	require.NotEmpty(t, one.begin("visit", args{"roomId": frozen})().Error)
	leader.Kill()
	one.do("dispose", args{"roomId": one.create("cat")})
	g.old("cat")
	goes(reservation + "cat")
	two.cont()
	require.Equal(t, []string{frozen}, two.rooms())

	var s stats
	g.eventually("the other one counts", func() bool {
		answer, err := http.Get("http://" + other.Said("serving HTTP", "addr") + "/api/v1/stats")
		require.NoError(t, err)
		defer answer.Body.Close()
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&s))
		return s.CumulativeStats.ExpiredReservations >= 1
	})
	require.Equal(t, []string{"ann", "fay"}, g.reserved())
	require.Equal(t, []string{"bob", "cat"}, gone.of(reservation))
	require.Equal(t, []string{over.Hex(), over.Hex() + ":ratings"}, gone.of("match:"))
	layout := guard.Layout{Prefix: "{cleanup}:"}
	require.Equal(t, prefixed(reservation, []string{"bob", "cat"}), g.logged(layout, "reservations"))
	require.Equal(t, []string{"match:" + over.Hex()}, g.logged(layout, "matches"))
	require.Zero(t, s.CumulativeStats.StaleQueueEntries+s.CumulativeStats.OrphanedBotStates)
}
