package demo

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// converged returns a state that matches the truth: two devices at a, one at b.
func converged() (s state, truth map[string]string) {
	return state{
		leader: "b", epoch: 1, entries: map[string]string{"1": "a", "2": "a", "3": "b"}, roster: []string{"a", "b"},
		alive: map[string]bool{"a": true, "b": true, "old": false}, indexes: map[string][]string{"a": {"1", "2"}, "b": {"3"}, "old": nil},
	}, map[string]string{"1": "a", "2": "a", "3": "b"}
}

func TestNothingButTheTruthIsConverged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		spoil func(s *state, truth map[string]string)
		want  string
	}{
		{"nothing", func(*state, map[string]string) {}, ""},
		{"an entry is missing", func(s *state, _ map[string]string) { delete(s.entries, "1") }, `1 has its socket at a, its entry names ""`},
		{"an entry names another", func(s *state, _ map[string]string) { s.entries["1"] = "b" }, `its entry names "b"`},
		{"an entry without a socket", func(s *state, _ map[string]string) { s.entries["4"] = "a" }, "an entry of 4 names a"},
		{"a device is nowhere", func(_ *state, truth map[string]string) { delete(truth, "3") }, "2 of 3 devices are connected"},
		{"an index lacks one", func(s *state, _ map[string]string) { s.indexes["a"] = []string{"1"} }, "2 has its socket at a and is not in its index"},
		{"an index has one more", func(s *state, _ map[string]string) { s.indexes["b"] = []string{"3", "1"} }, `the index of b has 1, whose socket is at "a"`},
		{"the dead have an index", func(s *state, _ map[string]string) { s.indexes["old"] = []string{"9"} }, "the index of old has 9"},
		{"the dead are on the roster", func(s *state, _ map[string]string) { s.roster = append(s.roster, "old") }, "on the roster are [a b old]"},
		{"one is not on the roster", func(s *state, _ map[string]string) { s.roster = []string{"a"} }, "on the roster are [a]"},
		{"the dead have a heartbeat", func(s *state, _ map[string]string) { s.alive["old"] = true }, "old: running false, heartbeat true"},
		{"one has no heartbeat", func(s *state, _ map[string]string) { s.alive["b"] = false }, "b: running true, heartbeat false"},
		{"nobody leads", func(s *state, _ map[string]string) { s.leader = "" }, `"" leads`},
		{"the dead lead", func(s *state, _ map[string]string) { s.leader = "old" }, `"old" leads`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, truth := converged()
			tt.spoil(&s, truth)
			found := differences(&s, truth, 3, []string{"b", "a"})
			if tt.want == "" {
				require.Empty(t, found)
				return
			}
			require.Contains(t, fmt.Sprint(found), tt.want)
		})
	}
}

func TestWhatIsSaidOfAnInstanceThatHasLeft(t *testing.T) {
	t.Parallel()
	s, _ := converged()
	require.True(t, s.left("old"))
	require.False(t, s.left("a"))
	require.Equal(t, 2, s.naming("a"))
	s.indexes["old"] = []string{"1"}
	require.False(t, s.left("old"))
}

// on returns a demo that has not begun, on a test's own server.
func on(t *testing.T, server *redistest.Server) Config {
	t.Helper()
	control := redis.NewClient(lease.Options(server.Options()))
	t.Cleanup(func() { _ = control.Close() })
	return Config{
		Command: func(...string) *exec.Cmd { return exec.Command("/nonexistent/ingest") },
		Redis:   server.Client(), Control: control, RedisURL: "redis://" + server.Addr(), Out: &bytes.Buffer{}, Dir: t.TempDir(),
	}
}

func TestAReplicaThatCannotStartEndsTheDemo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := on(t, server)
	require.ErrorContains(t, Run(t.Context(), cfg), "start replica-1")
	cfg.Command = func(...string) *exec.Cmd { return exec.Command("sh", "-c", "echo what is wrong >&2") }
	require.ErrorContains(t, Run(t.Context(), cfg), "replica-1 has ended: what is wrong")
	cfg.Command = func(...string) *exec.Cmd { return exec.Command("sleep", "1000") }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Run(ctx, cfg), context.Canceled)
	cfg.Pace = Leisurely
	cfg.Pace.Patience = 1 // a nanosecond
	require.ErrorIs(t, Run(t.Context(), cfg), ErrLate)
}

func TestAcknowledgedRecordsThatAreNotInTheStreamAreFound(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, l := server.Client(), newAcknowledged()
	records := device.NewTrack(1).Next(1200) // more than a page
	l.add("1", records)
	l.add("1", records[:5]) // sent again, stored twice
	l.add("2", records[:2])
	store := func(imei string, at uint64) {
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: gateway.Stream, Values: []any{"imei", imei, "ts", at}}).Err())
	}
	pipe := rdb.Pipeline()
	for i := range records {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: gateway.Stream, Values: []any{"imei", "1", "ts", records[i].Timestamp}})
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	store("1", records[3].Timestamp)
	store("2", records[1].Timestamp)
	store("3", records[1].Timestamp) // stored, its answer was lost
	acked, missing, twice, err := l.compare(t.Context(), rdb)
	require.NoError(t, err)
	require.Equal(t, []int{1202, 1, 1}, []int{acked, missing, twice})
	store("2", records[0].Timestamp)
	_, missing, _, err = l.compare(t.Context(), rdb)
	require.NoError(t, err)
	require.Zero(t, missing)
}
