package availability

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestOnAClusterTheTimeIsThatOfTheServerWithTheMirror(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	layout := guard.Layout{Prefix: "{availability}:"}
	open := func() *redis.ClusterClient {
		rdb := redis.NewClusterClient(lease.ClusterOptions(c.Options()))
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	rdb := open()
	m, err := New(Config{Source: newFake(), Client: rdb, Control: open(), Layout: layout})
	require.NoError(t, err)
	owner := c.Owner(m.keys.seeded()).Addr()
	// The other servers refuse to return the time.
	err = rdb.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		if node.Options().Addr == owner {
			return nil
		}
		return node.Do(ctx, "ACL", "SETUSER", "default", "-time").Err()
	})
	require.NoError(t, err)
	for range 20 {
		now, err := m.serverTime(t.Context(), directly)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), now, time.Minute)
	}
}

func TestAJanitorWithAnotherPrefixIsRefusedByName(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(), slowly)
		l := r.leads(w.Options, guard.Layout{Prefix: w.Prefix + "other:"}, false)
		l.source.put(silent("a"))
		l.seeded()
		reports := l.sweep("")
		for _, sweep := range l.Sweeps() {
			name, report := sweep.Name(), reports[sweep.Name()]
			require.Equal(t, janitor.Failed, report.Outcome, name)
			require.Contains(t, report.Error, "both need the same Layout", name)
			require.Contains(t, report.Error, w.Prefix+"other:", name)
		}
		require.Contains(t, l.Health().Offline, "both need the same Layout")
	})
}
