package workforce

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func still(t *testing.T, n int) *Force {
	t.Helper()
	f, err := New(Config{Mitras: n, Targets: []string{"http://one"}, Secret: secret, Backend: newProgram()})
	require.NoError(t, err)
	return f
}

// agreeing returns a workforce of two apps, one of them online with a session.
func agreeing(t *testing.T) (f *Force, s *sides) {
	t.Helper()
	f = still(t, 2)
	up, dead := f.IDs()[0], f.IDs()[1]
	f.byID[up].turns(Up)
	f.byID[up].went(true, answer{sent: time.Now(), got: time.Now()})
	f.byID[dead].turns(Dead)
	f.dispatcher.knows("s", Session{up, "active"})
	return f, &sides{
		postgres: map[string]place{up: {online: true, sessions: 1, version: 7}, dead: {version: 3}},
		redis:    map[string]place{up: {online: true, sessions: 1, version: 7}, dead: {version: 3}},
		sessions: map[string]Session{"s": {up, "active"}}, onlineRedis: 1, onlinePostgres: 1, most: 1,
	}
}

func TestNothingButAgreementHasNoDifferences(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		spoil func(f *Force, s *sides, up, dead string)
		want  string
	}{
		{"nothing", func(*Force, *sides, string, string) {}, ""},
		{"one who is up is offline", func(_ *Force, s *sides, up, _ string) {
			s.postgres[up] = place{sessions: 1, version: 7}
			s.redis[up] = s.postgres[up]
		}, "online is true as its app knows, false in Postgres"},
		{"a dead one is online", func(_ *Force, s *sides, _, dead string) {
			s.postgres[dead] = place{online: true, version: 3}
			s.redis[dead] = s.postgres[dead]
		}, "online is false as its app knows, true in Postgres"},
		{"Redis says otherwise", func(_ *Force, s *sides, up, _ string) {
			s.redis[up] = place{sessions: 1, version: 7}
		}, "online is true in Postgres, false in Redis"},
		{"a counter is wrong", func(_ *Force, s *sides, up, _ string) {
			s.redis[up] = place{online: true, sessions: 2, version: 7}
		}, "1 sessions in Postgres, 2 in Redis"},
		{"a version is old", func(_ *Force, s *sides, _, dead string) {
			s.redis[dead] = place{version: 2}
		}, "version 3 in Postgres, 2 in Redis"},
		{"a mark is left", func(_ *Force, s *sides, _, dead string) {
			s.redis[dead] = place{version: 3, marked: true}
		}, "still marked"},
		{"too many sessions", func(_ *Force, s *sides, _, _ string) { s.most = 0 }, "1 sessions, and 0 is the most"},
		{"a session is another's", func(_ *Force, s *sides, _, dead string) {
			s.sessions["s"] = Session{dead, "active"}
		}, "as the dispatcher knows"},
		{"a session is gone", func(_ *Force, s *sides, _, _ string) { delete(s.sessions, "s") }, "as the dispatcher knows"},
		{"others are online in Redis", func(_ *Force, s *sides, _, _ string) { s.onlineRedis++ }, "1 are online in Postgres, 2 in Redis"},
		{"an answer is missing", func(f *Force, _ *sides, up, _ string) { f.byID[up].asks(true) }, "1 apps and sessions wait"},
		{"an answer about a session is missing", func(f *Force, _ *sides, _, _ string) { f.dispatcher.opens("s") }, "1 apps and sessions wait"},
		{"one has not begun", func(f *Force, _ *sides, _, dead string) { f.byID[dead].turns(Starting) }, "1 apps and sessions wait"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, s := agreeing(t)
			tt.spoil(f, s, f.IDs()[0], f.IDs()[1])
			found := f.differences(s)
			if tt.want == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0], tt.want)
		})
	}
}

func TestWhoWasSetOfflineAndHowLongTheyHadBeenSilent(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	f := still(t, 1)
	id := f.IDs()[0]
	a := f.byID[id]

	_, ok := f.offlined(id, at(5))
	require.False(t, ok, "nothing was acknowledged to it: a simulation before this one")
	_, ok = f.offlined("another", at(5))
	require.False(t, ok)

	a.went(true, answer{sent: at(10), got: at(11)})
	a.beat(answer{sent: at(20), got: at(23)})
	o, ok := f.offlined(id, at(22))
	require.True(t, ok)
	require.Equal(t, 12*time.Second, o.Silent, "the heartbeat was not acknowledged yet: it may have come later")
	o, ok = f.offlined(id, at(53))
	require.True(t, ok)
	require.Equal(t, 33*time.Second, o.Silent)
	require.Empty(t, Overruled([]Offlined{o}, 33*time.Second))
	require.Equal(t, []Offlined{o}, Overruled([]Offlined{o}, 34*time.Second))

	a.offs = append(a.offs, span{from: at(60), to: at(62)})
	_, ok = f.offlined(id, at(61))
	require.False(t, ok, "it had asked for it")
	_, ok = f.offlined(id, at(63))
	require.True(t, ok)
	a.offs = append(a.offs, span{from: at(70), open: true})
	_, ok = f.offlined(id, at(90))
	require.False(t, ok, "it may have asked for it")
}

var migrated = pgtest.Template{Prepare: func(ctx context.Context, url string) error {
	source, err := postgres.Open(ctx, url)
	if err != nil {
		return err
	}
	defer source.Close()
	return source.Migrate(ctx)
}}

func TestTheTruthIsReadFromPostgresAndRedis(t *testing.T) {
	t.Parallel()
	db, server, prefix := migrated.Database(t), redistest.Shared(t), redistest.Prefix(t)
	rdb := redis.NewClient(server.Options())
	defer rdb.Close()
	backend := DB{db.Pool}
	f, err := New(Config{Mitras: 2, Targets: []string{"http://one"}, Secret: secret, Backend: backend})
	require.NoError(t, err)
	ids := f.IDs()
	require.NoError(t, backend.AddMitras(t.Context(), ids))
	require.NoError(t, backend.AddMitras(t.Context(), ids))
	const session = "00000000-0000-4000-8000-000000000001"
	mitra, status, err := backend.Session(t.Context(), session)
	require.NoError(t, err)
	require.Empty(t, mitra+status)
	require.NoError(t, backend.Search(t.Context(), session))
	require.NoError(t, backend.Search(t.Context(), session))
	_, status, err = backend.Session(t.Context(), session)
	require.NoError(t, err)
	require.Equal(t, "searching", status)

	_, err = db.Exec(t.Context(), `SELECT availability_set_online($1, true)`, ids[0])
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), `SELECT availability_accept($1, $2, 3)`, session, ids[0])
	require.NoError(t, err)
	for i, id := range ids {
		f.byID[id].turns([]State{Up, Dead}[i])
	}
	f.byID[ids[0]].went(true, answer{sent: time.Now(), got: time.Now()})
	f.dispatcher.knows(session, Session{ids[0], "active"})

	truth := &Truth{Force: f, DB: db.Pool, Redis: rdb, Prefix: prefix}
	found, err := truth.Differences(t.Context())
	require.NoError(t, err)
	require.Contains(t, found, "1 are online in Postgres, 0 in Redis")
	require.Contains(t, found, ids[0]+": online is true in Postgres, false in Redis")
	require.Equal(t, ", mirror 0, Postgres 1", truth.Stores(t.Context()))

	for _, id := range ids {
		var version, busy int
		require.NoError(t, db.QueryRow(t.Context(),
			`SELECT version, active_sessions FROM mitra_availability WHERE mitra_id = $1`, id).Scan(&version, &busy))
		require.NoError(t, rdb.HSet(t.Context(), prefix+"mitras:version", id, version).Err())
		require.NoError(t, rdb.Set(t.Context(), prefix+"mitra:capacity:"+id, busy, 0).Err())
	}
	require.NoError(t, rdb.SAdd(t.Context(), prefix+"mitras:online", ids[0]).Err())
	found, err = truth.Differences(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
	require.NoError(t, rdb.HSet(t.Context(), prefix+"mitras:condemned", ids[1], 3).Err())
	found, err = truth.Differences(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)

	before := time.Now()
	_, err = db.Exec(t.Context(), `SELECT availability_set_online($1, false)`, ids[0])
	require.NoError(t, err)
	all, err := truth.Offlined(t.Context(), before.Add(-time.Minute))
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, ids[0], all[0].Mitra)
	require.Len(t, Overruled(all, time.Hour), 1, "it was heard of less than an hour before")
	all, err = truth.Offlined(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Empty(t, all)

	require.NoError(t, rdb.Close())
	db.Close()
	require.Equal(t, ", mirror ?, Postgres ?", truth.Stores(t.Context()))
	_, err = truth.Differences(t.Context())
	require.Error(t, err)
	_, err = truth.Offlined(t.Context(), before)
	require.Error(t, err)
}
