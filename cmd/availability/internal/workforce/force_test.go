package workforce

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestWhoWasSetOfflineAndHowLongTheyHadBeenSilent(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	a := New(Config{Mitras: 1, Targets: []string{"http://one"}}).apps[0]
	silent := func(s int) any {
		if silence, known := a.silentFor(at(s)); known {
			return silence
		}
		return "unknown"
	}
	require.Equal(t, "unknown", silent(5), "nothing was acknowledged to it: a simulation before this one")
	a.acknowledged("online", answer{sent: at(10), got: at(11)})
	a.acknowledged("heartbeat", answer{sent: at(20), got: at(23)})
	require.Equal(t, 12*time.Second, silent(22), "the heartbeat was not acknowledged yet: it may have come later")
	require.Equal(t, 33*time.Second, silent(53))
	a.calls = append(a.calls, call{sent: at(60), offline: true})
	require.Equal(t, "unknown", silent(90), "it may have asked for it")
	a.acknowledged("offline", answer{sent: at(61), got: at(62)})
	require.Equal(t, "unknown", silent(61))
	require.Equal(t, 43*time.Second, silent(63))
}

func TestNothingButAgreementHasNoDifferences(t *testing.T) {
	t.Parallel()
	db, server, prefix := pgtest.Database(t), redistest.Shared(t), redistest.Prefix(t)
	rdb := redis.NewClient(server.Options())
	t.Cleanup(func() { _ = rdb.Close() })
	source, err := postgres.Open(t.Context(), db.URL)
	require.NoError(t, err)
	defer source.Close()
	require.NoError(t, source.Migrate(t.Context()))
	f := New(Config{Mitras: 1, Targets: []string{"http://one"}, DB: db.Pool})
	a := f.apps[0]
	_, err = db.Exec(t.Context(), `INSERT INTO mitras (id) VALUES ($1)`, a.id)
	require.NoError(t, err)
	state, err := source.SetOnline(t.Context(), a.id, true)
	require.NoError(t, err)
	a.acknowledged("online", answer{})

	truth := &Truth{Force: f, Redis: rdb, Prefix: prefix}
	online := func() { rdb.SAdd(t.Context(), prefix+"mitras:online", a.id) }
	free := func() { rdb.Set(t.Context(), prefix+"mitra:capacity:"+a.id, 0, 0) }
	version := func() { rdb.HSet(t.Context(), prefix+"mitras:version", a.id, state.Version) }
	online()
	free()
	version()
	for _, tt := range []struct {
		name        string
		spoil, mend func()
		wants       string
	}{
		{"online in Redis", func() { rdb.SRem(t.Context(), prefix+"mitras:online", a.id) },
			online, "{false 0"},
		{"sessions", func() { rdb.Set(t.Context(), prefix+"mitra:capacity:"+a.id, 1, 0) },
			free, "{true 1"},
		{"version", func() { rdb.HSet(t.Context(), prefix+"mitras:version", a.id, 99) },
			version, "99} in Redis"},
		{"dead", func() { a.turns(Up, Dead) }, func() { a.turns(Dead, Up) }, "online false as its app knows"},
		{"unsettled", func() { a.online = false }, func() { a.online = true }, "settled: false"},
	} {
		found, err := truth.Differences(t.Context())
		require.NoError(t, err)
		require.Empty(t, found, tt.name)
		tt.spoil()
		found, err = truth.Differences(t.Context())
		require.NoError(t, err)
		require.Len(t, found, 1, tt.name)
		require.Contains(t, found[0], tt.wants)
		tt.mend()
	}
	require.Equal(t, ", mirror 1, Postgres 1", truth.Stores(t.Context()))
}
