package inspect

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestDurationsAreWrittenAsPeopleReadThem(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 340 * time.Millisecond: "300ms", 4200 * time.Millisecond: "4.2s", 133 * time.Second: "2m13s",
		2 * time.Minute: "2m", 185 * time.Minute: "3h5m", 3 * time.Hour: "3h", 98 * time.Hour: "4d2h",
		96 * time.Hour: "4d", 240 * time.Hour: "10d", -3 * time.Second: "-3s",
	} {
		require.Equal(t, want, Short(d))
	}
	require.Equal(t, "just now", Ago(-time.Second))
	require.Equal(t, "2m13s ago", Ago(133*time.Second))
	require.Equal(t, "98h", span(98*time.Hour), "programs read Go's syntax")
}

func TestAVersionOfNoReleaseIsItsCommit(t *testing.T) {
	t.Parallel()
	for version, short := range map[string]string{
		"v0.0.0-20261126053012-4b9f82ba1234":         "4b9f82ba",
		"v0.1.1-0.20261126053012-4b9f82ba1234+dirty": "4b9f82ba+",
		"v0.1.0-rc.1.0.20261126053012-4b9f82ba1234":  "4b9f82ba",
		"v0.1.0": "v0.1.0", "(devel)": "(devel)", "v0.1.0-rc.1": "v0.1.0-rc.1", "": "",
	} {
		require.Equal(t, short, Version(version), version)
	}
}

func TestAHeartbeatOfAnyWriterIsRead(t *testing.T) {
	t.Parallel()
	h := heartbeat("1893596645000/18935965120000000000000007", 60*time.Second)
	require.Equal(t, time.UnixMilli(1893596645000), h.Beat)
	require.Equal(t, time.UnixMicro(1893596512000000), h.Boot)
	require.Equal(t, 90*time.Second, h.ttl(h.Beat.Add(30*time.Second+7*time.Millisecond)))
	for _, value := range []string{"", "1", "alive", "x/y", "1893596645000"} {
		h := heartbeat(value, -1)
		require.True(t, h.Alive)
		require.True(t, h.Beat.IsZero() && h.Boot.IsZero())
		require.Zero(t, h.ttl(time.Now()))
	}
}

func TestATermBeganWhenItsEpochSaysUnlessThatIsDrawnHigher(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(1893596645000000)
	require.Equal(t, time.UnixMicro(1893596512000000), began(1893596512000000, now))
	require.Zero(t, began(0, now))
	require.Zero(t, began(7, now))
	require.Equal(t, now, began(1893596645000001, now), "it began while it was read")
	require.Zero(t, began(1893596645000001+10e6, now))
	require.Zero(t, began(1<<63, now))
}

func TestWhatIsNotUnderstoodOfARecordIsLeftEmpty(t *testing.T) {
	t.Parallel()
	now := time.Now()
	values := map[string]any{"owner": "x", "imeis": "no JSON", "count": "many"}
	r := record(redis.XMessage{ID: "7-1", Values: values}, now)
	require.Equal(t, Record{ID: "7-1", Epoch: 7, Owner: "x"}, r)
	r = record(redis.XMessage{ID: "7-2", Values: map[string]any{"keys": `["a"]`, "at": "1893596645000"}}, now)
	require.Equal(t, []string{"a"}, r.Items)
	require.Equal(t, time.UnixMilli(1893596645000), r.At)
}

func TestARedisThatIsTooOldIsWrong(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]Level{
		"6.2.14": Wrong, "5.0": Wrong, "7.0.15": OK, "8.1.0": OK, "10.0.0": OK, "": Warning, "unknown": Warning,
	} {
		require.Equal(t, want, version(&patient{server: Server{Version: v}})[0].Level, v)
	}
	require.Equal(t, "Redis 6.2.14 is too old. Upgrade it to 7.0 or newer.",
		version(&patient{server: Server{Version: "6.2.14"}})[0].Text())
}
