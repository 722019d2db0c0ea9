package availability

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// What was found is gone once it is healed, so it is reported although the source's answer is lost.
func TestWhatWasHealedWithoutAnAnswerIsReportedOnce(t *testing.T) {
	for op, c := range map[string]struct {
		sweep   string
		happens func(l *leader)
		counted func(l *leader) int
	}{
		"Repair": {"availability_reconcile", func(l *leader) {
			wrong := l.source.state("a")
			wrong.Sessions = 2
			l.source.base["a"] = wrong
		}, func(l *leader) int { return l.drift(Base) }},
		"Outbid": {"availability_reconcile", func(l *leader) {
			before := l.source.state("a")
			_, err := l.Offline(l.t.Context(), "a")
			require.NoError(l.t, err)
			l.source.setBack(before)
		}, func(l *leader) int { return l.drift(Ahead) }},
		"AutoOffline": {"availability_offline", func(l *leader) {
			l.keepSnapshot(lastSnapshot{Snapshot: Snapshot{true, 1}, generation: l.lastSnapshot().generation})
			require.NoError(l.t, l.client.Set(l.t.Context(), l.keys.snapshot(), `{"available":true,"count":1}`, snapshotLasts).Err())
		}, func(l *leader) int {
			require.Zero(l.t, l.client.Exists(l.t.Context(), l.keys.snapshot()).Val(), "it counts the mitra")
			return int(testutil.ToFloat64(l.metrics.offline))
		}},
	} {
		t.Run(op, func(t *testing.T) {
			swept(t, []State{silent("a")}, func(t *testing.T, l *leader) {
				c.happens(l)
				l.failing(op + " committed")
				require.Equal(t, janitor.Failed, l.pass(c.sweep).Outcome)
				require.Equal(t, 1, c.counted(l))
				l.source.fault = func(string) error { return nil }
				require.Equal(t, janitor.Done, l.pass(c.sweep).Outcome)
				require.Equal(t, 1, c.counted(l))
				l.same()
			})
		})
	}
}

// Nobody else seeds while a seeding is begun.
func TestASeedingThatBeganWithoutAnAnswerIsInNobodysWay(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(online("a")))
		require.NoError(t, seedScript.Load(t.Context(), r.client).Err())
		lost := false
		r.rdb.AddHook(commands{func(cmd redis.Cmder) error {
			if lost || !slices.Contains(cmd.Args(), any("begin")) {
				return nil
			}
			lost = true
			require.NoError(t, r.client.Do(t.Context(), cmd.Args()...).Err())
			return io.EOF
		}})
		_, err := r.seed(t.Context())
		require.ErrorIs(t, err, io.EOF)
		r.seeded()
		r.same()
	})
}

// go-redis returns the refusal of a new connection for the whole pipeline, and its commands look
// answered: nothing is there.
func TestARefusedConnectionIsNoEmptyMirror(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(online("a")))
		r.seeded()
		r.rdb.AddHook(commands{func(redis.Cmder) error { return errors.New("WRONGPASS") }})
		_, err := (&feed{Mirror: r.Mirror}).seededAt(t.Context(), time.Now())
		require.ErrorContains(t, err, "WRONGPASS")
	})
}
