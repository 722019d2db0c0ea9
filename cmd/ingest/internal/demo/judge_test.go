package demo

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestNothingButTheTruthIsConverged(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(s *state, truth map[string]string){
		"": func(*state, map[string]string) {},
		`1 has its socket at "a", its entry names ""`: func(s *state, _ map[string]string) { delete(s.entries, "1") },
		`its entry names "b"`:                         func(s *state, _ map[string]string) { s.entries["1"] = "b" },
		"an entry of 4 names a":                       func(s *state, _ map[string]string) { s.entries["4"] = "a" },
		"1 of 2 devices are connected":                func(_ *state, truth map[string]string) { delete(truth, "2") },
		"b has no heartbeat":                          func(s *state, _ map[string]string) { s.alive["b"] = false },
		`2 has its socket at ""`:                      func(_ *state, truth map[string]string) { truth["2"] = "of old" },
	} {
		d := &demo{Config: Config{Devices: 2}, all: []*replica{
			{id: "a", devices: "at a"}, {id: "b", devices: "at b"}, {id: "old", devices: "of old", leaving: true},
		}}
		s := state{entries: map[string]string{"1": "a", "2": "b"}, alive: map[string]bool{"a": true, "b": true}}
		truth := map[string]string{"1": "at a", "2": "at b"}
		spoil(&s, truth)
		found := d.differences(&s, truth)
		require.Equal(t, want == "", len(found) == 0, found)
		require.Contains(t, fmt.Sprint(found), want)
	}
}

func TestAcknowledgedRecordsThatAreNotInTheStreamAreFound(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	d := &demo{Config: Config{Redis: rdb}, acked: map[record]bool{}}
	records := device.NewTrack(1).Next(1200) // more than a page
	d.acknowledged("1", records)
	d.acknowledged("2", records[:2])
	pipe := rdb.Pipeline()
	store := func(imei string, at uint64) {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: gateway.Stream, Values: []any{"imei", imei, "ts", at}})
	}
	for i := range records {
		store("1", records[i].Timestamp)
	}
	store("2", records[1].Timestamp)
	store("3", records[1].Timestamp) // stored, its answer was lost
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	acked, missing, err := d.stored(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1202, 1}, []int{acked, missing})
}

func TestAReplicaThatCannotServeEndsTheDemo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	control := redis.NewClient(lease.Options(server.Options()))
	t.Cleanup(func() { _ = control.Close() })
	for want, argv := range map[string][]string{
		"start replica-1":                        {"/nonexistent/ingest"},
		"replica-1 has ended: what is wrong":     {"sh", "-c", "echo what is wrong >&2"},
		"in vain for replica-1 to serve devices": {"sleep", "1000"},
	} {
		cfg := Config{
			Command: func(...string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) },
			Redis:   server.Client(), Control: control, Out: t.Output(), Devices: 5, Pace: Leisurely,
		}
		if argv[0] == "sleep" {
			cfg.Pace.Patience = time.Nanosecond
		}
		require.ErrorContains(t, Run(t.Context(), cfg), want)
	}
}
