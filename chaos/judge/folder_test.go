package judge

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// kept are the histories of which a folder is in testdata, for rejudge.
var kept = map[string]func(s *builder){
	"good": func(s *builder) {
		leaderDies(3*time.Second, time.Second)(s)
		s.registers("b", "4")
		s.passes(time.Second)
		s.seen("4", "b", 0, time.Millisecond)
		s.happens("SREM instances:roster a")
		s.facts.Truth, s.facts.Alive = map[string]string{"4": "b"}, []string{"b"}
	},
	"bad": func(s *builder) {
		s.boots("a")
		s.registers("a", "1")
		s.happens("HDEL connections:registry 1")
		s.facts.Truth, s.facts.Alive = map[string]string{"1": "a"}, []string{"a"}
	},
}

// ROLLCALL_WRITE_TESTDATA=1 writes the folders anew, when histories or facts have changed.
func TestKeptFoldersAreTheHistories(t *testing.T) {
	t.Parallel()
	for name, tell := range kept {
		s := newBuilder()
		tell(s)
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, history.Write(path, s.history))
		dir := filepath.Join("testdata", name)
		if os.Getenv("ROLLCALL_WRITE_TESTDATA") != "" {
			require.NoError(t, Save(dir, s.facts, path))
		}
		h, f, err := Load(dir)
		require.NoError(t, err)
		require.Equal(t, commandsOf(s.history), commandsOf(h))
		again, told := Judge(h, f), Judge(s.history, s.facts)
		require.Equal(t, told.Clean, again.Clean)
		require.Equal(t, len(told.Violations), len(again.Violations))
		require.Equal(t, checksOf(append(told.Violations, told.Settled()...)), checksOf(append(again.Violations, again.Settled()...)))
	}
}

func commandsOf(h history.History) (c [][]history.Command) {
	for i := range h {
		c = append(c, h[i].Commands)
	}
	return c
}

func TestAFolderKeepsEverything(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, history.AppendOnly()...)
	require.NoError(t, server.Client().HSet(t.Context(), "connections:registry", "1", "a").Err())
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	facts := Facts{
		Layout: registry.Layout{Prefix: "p:"}, HeartbeatInterval: 1, HeartbeatTTL: 2, LeaseTTL: 3, JanitorInterval: 4, Slack: 5,
		Sockets: []Socket{{IMEI: "1", Instance: "a", Live: at}}, Planted: map[string]bool{"z": true},
		Outages: []Outage{{"", at, at}}, Held: []Outage{{"a", at, at}}, Deaths: []Death{{"a", at, Killed, true}},
		Lookups: []Lookup{{"1", "", at, at}}, Acks: []Lookup{{"1", "a", at, at}},
		Truth: map[string]string{}, Alive: []string{"a"},
	}
	stream := filepath.Join(t.TempDir(), "stream")
	require.NoError(t, history.Write(stream, history.History{{Second: 7, Commands: []history.Command{{history.LifeCommand, "why"}, {"SET", "k", "v"}}}}))
	dir := filepath.Join(t.TempDir(), "run")
	for range 2 { // the second time in place of the first
		require.NoError(t, Save(dir, facts, server.Dir(), stream))
	}

	h, got, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, facts, got)
	want, err := history.Read(server.Dir(), stream)
	require.NoError(t, err)
	require.Equal(t, want, h)
	require.True(t, h[len(h)-1].Life())
	require.Equal(t, int64(7), h[len(h)-1].Second)
	require.Contains(t, Violation{Check: "C1", Part: h[len(h)-1].Part}.String(), "part 2")

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "part-001")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "part-002")))
	_, _, err = Load(dir)
	require.ErrorIs(t, err, os.ErrNotExist, "facts alone are no run")
	_, _, err = Load(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Error(t, Save(dir, facts, filepath.Join(dir, "nothing")))
}
