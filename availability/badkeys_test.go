package availability

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// nonsense is what no key, field or member of the mirror ever holds.
var nonsense = []string{
	"", " ", "x", "nan", "-nan", "inf", "-inf", "-1", "05", "+5", "1.5", "1e300", "0x10",
	"9007199254740993", "9223372036854775807", "9223372036854775808", "\xff\xfe\x00", strings.Repeat("9", 400),
	strings.Repeat("z", 24), "0000-99-99T99:99:99.999Z", "9999-12-31T23:59:59.999Z", `{"available":true,"count":-7}`,
	strings.Repeat("long ", mostReply/4),
}

// poisons make a key of each type, with values that mean nothing.
var poisons = map[string]func(p redis.Pipeliner, key, value string){
	"string": func(p redis.Pipeliner, key, value string) { p.Set(context.Background(), key, value, 0) },
	"list":   func(p redis.Pipeliner, key, value string) { p.RPush(context.Background(), key, value, "1") },
	"set":    func(p redis.Pipeliner, key, value string) { p.SAdd(context.Background(), key, value, "1") },
	"hash": func(p redis.Pipeliner, key, value string) {
		p.HSet(context.Background(), key, value, "1", "p", value, heldUntil, value, notRequired, value, heartbeatsAt, value)
	},
	"zset": func(p redis.Pipeliner, key, value string) {
		p.ZAdd(context.Background(), key, redis.Z{Score: 1, Member: value})
	},
	"stream": func(p redis.Pipeliner, key, value string) {
		p.XAdd(context.Background(), &redis.XAddArgs{Stream: key, Values: []string{"f", value}})
	},
}

// poison puts something else in the place of a key.
func (r *rig) poison(kind, key, value string) {
	r.t.Helper()
	_, err := r.client.TxPipelined(r.t.Context(), func(p redis.Pipeliner) error {
		p.Del(r.t.Context(), key)
		poisons[kind](p, key, value)
		return nil
	})
	require.NoError(r.t, err)
}

func (r *rig) unheard(id string) string { return r.keys.Prefix + "mitra:unheard:" + id }

// layout is the type of each key of the mirror, by its name; p is the mitra whose keys go bad.
func (r *rig) layout() map[string]string {
	k := r.keys
	return map[string]string{
		k.online(): "set", k.deactivated(): "set", k.version(): "hash", k.seeded(): "string",
		k.fed(): "hash", k.snapshot(): "string", k.computing(): "string", k.noted(): "hash",
		k.capacity("p"): "string", k.heartbeat("p"): "string", r.unheard("p"): "string", k.Witness(): "hash",
	}
}

// recovers requires that a change of somebody else arrives, that a comparison ends, and that
// everything is as the source has it.
func (r *rig) recovers(what string) {
	r.t.Helper()
	ctx, layout := r.t.Context(), r.layout()
	_, err := r.source.SetActive(ctx, "other", !r.source.state("other").Active) // by hand
	require.NoError(r.t, err)
	var found Answer[[]Available]
	r.eventually(func() bool {
		if _, _, err := r.reconcile(ctx, directly); err != nil || !r.Health().Whole || r.Health().FeedError != "" {
			return false
		}
		for key, want := range layout {
			is := r.client.Type(ctx, key).Val()
			if is == "none" && strings.HasSuffix(key, "mitras:seeded") {
				return false // it is being seeded
			}
			if is != want && is != "none" && key != r.unheard("p") && key != r.keys.Witness() {
				return false
			}
		}
		if len(r.differences()) != 0 {
			return false
		}
		for _, id := range []string{"a", "p"} {
			if beat, err := r.Heartbeat(ctx, id); err != nil || beat != BeatKept {
				return false // of "unseeded" the feed has not heard yet
			}
		}
		var err error
		found, err = r.FindAvailable(ctx, 0)
		return err == nil && found.From == FromValkey
	}, what)
	require.Subset(r.t, found.Value, []Available{{"a", 0}, {"b", 1}, {"p", 2}}, what)
	snapshot, err := r.Snapshot(ctx)
	require.NoError(r.t, err, what)
	require.GreaterOrEqual(r.t, snapshot.Value.Count, 3, what)
}

func TestAnyKeyOfAnyTypeAndValueStopsNobodyElse(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		busy, p := online("b"), online("p")
		busy.Sessions, p.Sessions = 1, 2
		r := newRig(t, w, newFake(online("a"), busy, p, online("other")))
		r.run()
		for key := range r.layout() {
			for kind := range poisons {
				value := nonsense[rand.IntN(len(nonsense))]
				r.poison(kind, key, value)
				r.recovers(fmt.Sprintf("%s is a %s of %q", strings.TrimPrefix(key, w.Prefix), kind, value))
			}
		}
		for _, key := range append([]string{capacityKeys, heartbeatKeys}, sharedKeys...) {
			require.Positive(t, testutil.ToFloat64(r.metrics.badKeys.WithLabelValues(key, rebuilt)), key)
			require.Zero(t, testutil.ToFloat64(r.metrics.badKeys.WithLabelValues(key, kept)), key)
		}
	})
}

// Keys that existed before the mirror do not belong to it.
func TestAKeyOfAnotherTypeThatWasThereBeforeTheMirrorIsKeptAndNamed(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		for _, name := range sharedKeys {
			t.Run(name, func(t *testing.T) {
				w.Prefix = redistest.Prefix(t)
				r := newRig(t, w, newFake(online("a")))
				f := newFeed(r.Mirror)
				key := w.Prefix + name
				r.poison("zset", key, "theirs")
				for range 3 {
					require.ErrorContains(t, f.look(t.Context()), key+" (zset)")
				}
				require.Equal(t, []string{"theirs"}, r.client.ZRange(t.Context(), key, 0, -1).Val())
				require.False(t, r.Health().Whole)
				require.InDelta(t, 1, testutil.ToFloat64(r.metrics.badKeys.WithLabelValues(name, kept)), 0, "named once")
				found, err := r.FindAvailable(t.Context(), 0)
				require.NoError(t, err)
				require.Equal(t, FromPostgres, found.From)
				require.NoError(t, r.client.Del(t.Context(), key).Err()) // somebody has decided
				require.NoError(t, f.look(t.Context()))
				require.True(t, r.Health().Whole)
				r.same()
			})
		}
	})
}

func TestKeysOfSomebodyWhomTheSourceDoesNotKnowAreKeptIfTheyAreOfAnotherType(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r, ctx := newRig(t, w, newFake(online("a"))), t.Context()
		r.seeded()
		require.NoError(t, r.client.SAdd(ctx, r.keys.online(), "nobody").Err())
		r.poison("hash", r.keys.heartbeat("nobody"), "theirs")
		require.NoError(t, r.client.Set(ctx, r.keys.capacity("nobody"), "7", 0).Err())
		require.Equal(t, map[string]int{Unknown: 1}, r.reconciled())
		require.Equal(t, "hash", r.client.Type(ctx, r.keys.heartbeat("nobody")).Val())
		require.Zero(t, r.client.Exists(ctx, r.keys.capacity("nobody")).Val())
		require.InDelta(t, 1, testutil.ToFloat64(r.metrics.badKeys.WithLabelValues(heartbeatKeys, kept)), 0)
		r.same()
	})
}

func TestABadHeartbeatIsNoSilence(t *testing.T) {
	for _, value := range []string{"x", strings.Repeat("z", 24), "9999-12-31T23:59:59.999Z", "hash"} {
		t.Run(value, func(t *testing.T) {
			swept(t, []State{silent("silent"), silent("p")}, func(t *testing.T, l *leader) {
				ctx, require := t.Context(), require.New(t)
				kind := "string"
				if value == "hash" {
					kind = value
				}
				// It has just pinged, but the source does not know yet.
				l.poison(kind, l.keys.heartbeat("p"), value)
				require.Equal(janitor.Done, l.pass("availability_heartbeats").Outcome)
				require.Less(time.Since(l.source.state("p").Seen), 24*time.Hour)
				require.True(l.source.state("p").Seen.Before(time.Now()), "nonsense does not reach the source")
				report := l.offline()
				require.Equal(janitor.Done, report.Outcome)
				require.False(l.source.state("silent").Online, "it is kept by nobody else's key")
				require.True(l.source.state("p").Online)
				// The comparison has nothing but what the source knows, which is old.
				l.reconciled()
				l.same()
				require.Equal(janitor.Done, l.offline().Outcome)
				require.True(l.source.state("p").Online, "when it was heard last is not known")
				long := time.Now().Add(-2 * l.source.settings.StaleAfter).UnixMilli()
				require.NoError(l.client.Set(ctx, l.unheard("p"), long, time.Hour).Err())
				require.Equal(janitor.Done, l.offline().Outcome)
				require.False(l.source.state("p").Online, "it has been silent since")
			})
		})
	}
}

func TestASnapshotThatNobodyComputedIsNotServed(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		for text, lasts := range map[string]time.Duration{
			`{"available":true,"count":-7}`: snapshotLasts, `{"available":true,"count":0}`: snapshotLasts,
			`{"available":false,"count":5}`: snapshotLasts, "x": snapshotLasts,
			`{"available":true,"count":9}`: time.Hour, `{"available":false,"count":0}`: 0,
		} {
			r := newRig(t, w, workforce())
			r.seeded()
			r.listening(time.Hour)
			require.NoError(t, r.client.Del(t.Context(), r.keys.computing()).Err())
			require.NoError(t, r.client.Set(t.Context(), r.keys.snapshot(), text, lasts).Err())
			a, err := r.Snapshot(t.Context())
			require.NoError(t, err)
			require.Equal(t, Snapshot{true, 2}, a.Value, text)
			require.Positive(t, r.client.PTTL(t.Context(), r.keys.snapshot()).Val())
		}
	})
}

func TestWhatSomebodyMadeLargeIsNotReadWhole(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r, ctx := newRig(t, w, workforce()), t.Context()
		r.seeded()
		r.listening(time.Hour)
		large := strings.Repeat("x", 2*mostReply)
		require.NoError(t, r.client.SAdd(ctx, r.keys.online(), large).Err())
		for range 2 { // the first read removes it
			found, err := r.FindAvailable(ctx, 0)
			require.NoError(t, err)
			require.Equal(t, FromValkey, found.From)
			require.Len(t, found.Value, 2)
			require.False(t, r.client.SIsMember(ctx, r.keys.online(), large).Val())
		}
		require.InDelta(t, 1, testutil.ToFloat64(r.metrics.badKeys.WithLabelValues("mitras:online", rebuilt)), 0)
		require.NoError(t, r.client.SAdd(ctx, r.keys.deactivated(), large).Err())
		require.NoError(t, r.client.HSet(ctx, r.keys.version(), large, "1").Err())
		require.Empty(t, r.reconciled())
		r.same()
		for key, field := range map[string]string{r.keys.noted(): heartbeatsAt, r.keys.fed(): "skew"} {
			require.NoError(t, r.client.HSet(ctx, key, field, large).Err())
		}
		require.NoError(t, newFeed(r.Mirror).tell(ctx, take, time.Time{}))
		require.NoError(t, r.client.Set(ctx, r.keys.seeded(), large, 0).Err())
		for range 2 * tripsAfter {
			count, err := r.CountOnline(ctx)
			require.NoError(t, err)
			require.Equal(t, FromPostgres, count.From)
		}
		require.Equal(t, "closed", r.Health().Redis)
	})
}

func TestACapacityThatIsNoNumberIsFull(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(online("a"), online("p")))
		r.seeded()
		for _, value := range nonsense {
			if value == "05" || value == "" {
				continue
			}
			require.NoError(t, r.client.Set(t.Context(), r.keys.capacity("p"), value, 0).Err())
			found, err := r.FindAvailable(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, []Available{{"a", 0}}, found.Value, "%q", value)
			status, err := r.Status(t.Context(), "p")
			require.NoError(t, err)
			require.Equal(t, FromPostgres, status.From, "%q", value)
		}
	})
}
