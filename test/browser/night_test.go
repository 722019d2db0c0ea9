package browser

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// night starts two replicas in a fleet of 30 that has a past: an hour of terms, deaths, evictions,
// holds, and of entries and registrations by the minute.
func night(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, server: redistest.Start(t), replicas: map[string]*replica{}}
	f.client = f.server.Client()
	f.past()
	f.peers(28)
	for _, id := range []string{"ingest-1", "ingest-2"} {
		f.launch(id)
	}
	f.eventually("a replica leads and nothing is held", func() bool {
		s := f.status()
		return s.Leader != nil && s.Leader.Epoch > 0 && s.Hold == nil && len(s.Instances) == 30
	})
	return f
}

// past writes what leaders have recorded in the last hour.
func (f *fleet) past() {
	f.t.Helper()
	now := time.Now()
	at := func(minutes float64) time.Time { return now.Add(-time.Duration(minutes * float64(time.Minute))) }
	id := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) + "-*" }
	p := f.client.Pipeline()
	add := func(stream, id string, values ...any) {
		p.XAdd(f.t.Context(), &redis.XAddArgs{Stream: stream, ID: id, Values: values})
	}
	for minute := 59; minute >= 1; minute-- {
		entries, registered := 12440-30*float64(minute), 40+25*math.Sin(float64(minute)/4)
		switch {
		case minute <= 34 && minute > 28:
			entries -= 1212 // until they are back elsewhere
		case minute == 28:
			registered = 640
		}
		add("janitor:minutes", id(at(float64(minute))), "entries", int(entries), "registered", int(registered))
	}
	for _, e := range []struct {
		minutes float64
		values  []any
	}{
		{52, []any{"kind", "pause", "who", "ann", "why", "Redis upgrade", "by", "ingest-4"}},
		{45, []any{"kind", "resume", "who", "ann", "by", "ingest-4"}},
		{36, []any{"kind", "death", "instance", "ingest-31", "by", "ingest-4"}},
		{35.5, []any{"kind", "death", "instance", "ingest-32", "by", "ingest-4"}},
		{15, []any{"kind", "hold", "reason", "gap", "by", "ingest-4"}},
		{13, []any{"kind", "hold_over", "reason", "gap", "by", "ingest-4"}},
		{12, []any{"kind", "left", "instance", "ingest-4", "by", "ingest-4"}},
	} {
		add("janitor:timeline", id(at(e.minutes)), e.values...)
	}
	epoch := at(58).UnixMicro()
	record := func(n int, minutes float64, values ...any) {
		add("janitor:log", fmt.Sprintf("%d-%d", epoch, n), append(values, "at", at(minutes).UnixMilli())...)
	}
	record(0, 58, "leader", "ingest-4", "term", "ingest-4/x")
	record(1, 34.4, "leader", "ingest-4", "sweep", "owners", "owner", "ingest-31", "count", 812)
	record(2, 34.1, "leader", "ingest-4", "sweep", "owners", "owner", "ingest-32", "count", 400)
	_, err := p.Exec(f.t.Context())
	require.NoError(f.t, err)
}

// peers writes what so many replicas that live have in Redis, and keeps them alive.
func (f *fleet) peers(n int) {
	f.t.Helper()
	ctx := f.t.Context()
	ids := make([]string, n)
	boot := strconv.FormatInt(time.Now().Add(-9*time.Hour).UnixMicro(), 10) + "0000000007"
	p := f.client.Pipeline()
	for i := range ids {
		ids[i] = "ingest-" + strconv.Itoa(i+3)
		if i >= n-2 {
			ids[i] = "ingest-7d9f8b6c5-x2x9k-3f9a2c" + strconv.Itoa(i)
		}
		about, err := json.Marshal(map[string]any{
			"boot": boot, "program": "ingest", "address": fmt.Sprintf("10.0.0.%d:8080", i+3),
			"version":  "v0.1.0-0.20261124120000-4b9f82ba" + fmt.Sprintf("%04x", 7*i),
			"interval": "1s", "ttl": "3s",
		})
		require.NoError(f.t, err)
		p.Set(ctx, "instance:about:"+ids[i], about, 0)
		devices := 380 + (i*i*37)%120
		members, entries := make([]any, devices), make([]any, 0, 2*devices)
		for d := range devices {
			imei := fmt.Sprintf("35630704%07d", 1000*i+d)
			members[d], entries = imei, append(entries, imei, ids[i])
		}
		p.SAdd(ctx, "instance:devices:"+ids[i], members...)
		p.HSet(ctx, "connections:registry", entries...)
	}
	_, err := p.Exec(ctx)
	require.NoError(f.t, err)
	f.beats(ids, boot, 3*time.Second, 1)
}

func TestThirtyInstancesAreOnOneScreen(t *testing.T) {
	t.Parallel()
	f := night(t)
	b := f.replicas["ingest-1"].page(t, 1280)
	b.await(`document.querySelectorAll("#rows tr").length === 30`)
	require.LessOrEqual(t, ask[float64](b, `document.querySelector("#rows tr:last-child").getBoundingClientRect().bottom -
		document.getElementById("problems").offsetHeight`), 800.0)
	for _, id := range []string{"verdict", "leader", "events-title", "key"} {
		require.LessOrEqual(t, ask[float64](b, `document.getElementById("`+id+`").getBoundingClientRect().bottom`),
			800.0, id)
	}
	b.says("events", "812 evicted of ingest-31, which had no heartbeat (owners)")
	b.says("events", "ingest-32 fell silent")
	for _, width := range []int64{1280, 800, 360} {
		b.narrow(width)
		require.Empty(t, ask[[]string](b, cut), "%d px", width)
		require.LessOrEqual(t, ask[int64](b, `document.documentElement.scrollWidth`), width)
	}
}

// cut lists texts that are wider than what shows them, or than the screen.
const cut = `[...document.querySelectorAll("#state *, #list *, #find *, #events *")]
	.filter(e => e.checkVisibility() && !e.closest(".unseen, svg, thead, select, input"))
	.filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
	.filter(e => {
		const range = document.createRange();
		range.selectNodeContents(e);
		const text = range.getBoundingClientRect();
		const wide = e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).display !== "inline";
		return wide || text.right > innerWidth + 1 || text.left < -1;
	}).map(e => e.tagName + " " + e.textContent.trim().slice(0, 40))`
