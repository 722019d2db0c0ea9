package availability

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor"
)

// nonsense is what no key, field or member of the mirror ever holds.
var nonsense = []string{
	"", " ", "x", "nan", "-nan", "inf", "-inf", "-1", "05", "+5", "1.5", "1e300", "0x10",
	"9007199254740993", "9223372036854775807", "9223372036854775808", "\xff\xfe\x00", strings.Repeat("9", 400),
	strings.Repeat("z", 24), "0000-99-99T99:99:99.999Z", "9999-12-31T23:59:59.999Z", `{"available":true,"count":-7}`,
	strings.Repeat("long ", mostReply/4),
}

// poisons are commands that make a key of each type, with values that mean nothing.
var poisons = map[string]string{
	"string": "SET KEY VALUE", "list": "RPUSH KEY VALUE 1", "set": "SADD KEY VALUE 1",
	"hash": "HSET KEY VALUE 1 p VALUE held_until VALUE not_required VALUE heartbeats_at VALUE",
	"zset": "ZADD KEY 1 VALUE", "stream": "XADD KEY * f VALUE",
}

// poison puts something else in the place of a key.
func (r *rig) poison(kind, key, value string) {
	r.t.Helper()
	var command []any
	for word := range strings.FieldsSeq(poisons[kind]) {
		is, ours := map[string]string{"KEY": key, "VALUE": value}[word]
		if !ours {
			is = word
		}
		command = append(command, is)
	}
	_, err := r.client.TxPipelined(r.ctx, func(p redis.Pipeliner) error {
		p.Del(r.ctx, key)
		p.Do(r.ctx, command...)
		return nil
	})
	r.NoError(err)
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
	ctx, layout := r.ctx, r.layout()
	_, err := r.source.SetActive(ctx, "other", !r.source.state("other").Active) // by hand
	r.NoError(err)
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
	r.Subset(found.Value, []Available{{"a", 0}, {"b", 1}, {"p", 2}}, what)
	snapshot, err := r.Snapshot(ctx)
	r.NoError(err, what)
	r.GreaterOrEqual(snapshot.Value.Count, 3, what)
}

func TestAnyKeyOfAnyTypeAndValueStopsNobodyElse(t *testing.T) {
	busy, p := online("b"), online("p")
	busy.Sessions, p.Sessions = 1, 2
	onEmpty(t, newFake(online("a"), busy, p, online("other")), func(r *rig) {
		r.run()
		for key := range r.layout() {
			for kind := range poisons {
				value := nonsense[rand.IntN(len(nonsense))]
				r.poison(kind, key, value)
				r.recovers(fmt.Sprintf("%s is a %s of %q", strings.TrimPrefix(key, r.keys.Prefix), kind, value))
			}
		}
		for _, key := range append([]string{capacityKeys, heartbeatKeys}, sharedKeys...) {
			r.Positive(r.badKeys(key, rebuilt), key)
			r.Zero(r.badKeys(key, kept), key)
		}
	})
}

// Keys that existed before the mirror do not belong to it.
func TestAKeyOfAnotherTypeThatWasThereBeforeTheMirrorIsKeptAndNamed(t *testing.T) {
	for _, name := range sharedKeys {
		t.Run(name, func(t *testing.T) {
			onEmpty(t, newFake(online("a")), func(r *rig) {
				f := newFeed(r.Mirror)
				key := r.keys.Prefix + name
				r.poison("zset", key, "theirs")
				for range 3 {
					r.ErrorContains(f.look(r.ctx), key+" (zset)")
				}
				r.Equal([]string{"theirs"}, r.client.ZRange(r.ctx, key, 0, -1).Val())
				r.False(r.Health().Whole)
				r.Equal(1, r.badKeys(name, kept), "named once")
				r.Equal(FromPostgres, r.found(0).From)
				r.redis("DEL", key) // somebody has decided
				r.NoError(f.look(r.ctx))
				r.True(r.Health().Whole)
				r.same()
			})
		})
	}
}

func TestKeysOfSomebodyWhomTheSourceDoesNotKnowAreKeptIfTheyAreOfAnotherType(t *testing.T) {
	onWhole(t, newFake(online("a")), func(r *rig) {
		ctx := r.ctx
		r.redis("SADD", r.keys.online(), "nobody")
		r.poison("hash", r.keys.heartbeat("nobody"), "theirs")
		r.redis("SET", r.keys.capacity("nobody"), "7")
		r.Equal(map[string]int{Unknown: 1}, r.reconciled())
		r.Equal("hash", r.client.Type(ctx, r.keys.heartbeat("nobody")).Val())
		r.Zero(r.client.Exists(ctx, r.keys.capacity("nobody")).Val())
		r.Equal(1, r.badKeys(heartbeatKeys, kept))
		r.same()
	})
}

func TestABadHeartbeatIsNoSilence(t *testing.T) {
	for _, value := range []string{"x", strings.Repeat("z", 24), "9999-12-31T23:59:59.999Z", "hash"} {
		t.Run(value, func(t *testing.T) {
			swept(t, []State{silent("silent"), silent("p")}, func(l *leader) {
				ctx, require := l.ctx, l
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
	onWhole(t, workforce(), func(r *rig) {
		for text, lasts := range map[string]time.Duration{
			`{"available":true,"count":-7}`: snapshotLasts, `{"available":true,"count":0}`: snapshotLasts,
			`{"available":false,"count":5}`: snapshotLasts, "x": snapshotLasts,
			`{"available":true,"count":9}`: time.Hour, `{"available":false,"count":0}`: 0,
		} {
			r := r.another(r.source)
			r.listening(time.Hour)
			r.redis("DEL", r.keys.computing())
			r.NoError(r.client.Set(r.ctx, r.keys.snapshot(), text, lasts).Err())
			r.Equal(Snapshot{true, 2}, r.snapshots().Value, text)
			r.Positive(r.client.PTTL(r.ctx, r.keys.snapshot()).Val())
		}
	})
}

func TestWhatSomebodyMadeLargeIsNotReadWhole(t *testing.T) {
	onWhole(t, workforce(), func(r *rig) {
		ctx := r.ctx
		r.listening(time.Hour)
		large := strings.Repeat("x", 2*mostReply)
		r.redis("SADD", r.keys.online(), large)
		for range 2 { // the first read removes it
			found := r.found(0)
			r.Equal(FromValkey, found.From)
			r.Len(found.Value, 2)
			r.False(r.client.SIsMember(ctx, r.keys.online(), large).Val())
		}
		r.Equal(1, r.badKeys("mitras:online", rebuilt))
		r.redis("SADD", r.keys.deactivated(), large)
		r.redis("HSET", r.keys.version(), large, "1")
		r.Empty(r.reconciled())
		r.same()
		for key, field := range map[string]string{r.keys.noted(): heartbeatsAt, r.keys.fed(): "skew"} {
			r.redis("HSET", key, field, large)
		}
		r.NoError(newFeed(r.Mirror).tell(ctx, take, time.Time{}))
		r.redis("SET", r.keys.seeded(), large)
		for range 2 * tripsAfter {
			r.Equal(FromPostgres, r.counted().From)
		}
		r.Equal("closed", r.Health().Redis)
	})
}

func TestACapacityThatIsNoNumberIsFull(t *testing.T) {
	onWhole(t, newFake(online("a"), online("p")), func(r *rig) {
		for _, value := range nonsense {
			if value == "05" || value == "" {
				continue
			}
			r.redis("SET", r.keys.capacity("p"), value)
			r.Equal([]Available{{"a", 0}}, r.found(0).Value, "%q", value)
			r.Equal(FromPostgres, r.states("p").From, "%q", value)
		}
	})
}
