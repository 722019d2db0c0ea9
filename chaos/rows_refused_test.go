package chaos

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// turnedAwayRows: Redis is well, and one owner is not let in, while the others keep the connections
// that they have. Its heartbeat ends for want of a way to write it.
var turnedAwayRows = []row{
	{39, "ConnectionsRefused", true, 60, nil, under(&turnedAway{how: noConnections}, nothingWent)},
	{39, "LoginsRefused", false, 60, nil, under(&turnedAway{how: noLogins}, nothingWent)},
	{39, "RightsTakenAway", false, 60, nil, under(&turnedAway{how: noRights}, nothingWent)},
}

type turnedAway struct {
	calm
	how func(w *environment, id string) (over func())
}

func (*turnedAway) setup(w *environment) { w.users("one", "two", "three") }

// users gives replicas a user of Redis each.
func (w *environment) users(ids ...string) {
	for _, id := range ids {
		require.NoError(w.T, w.acl(id, "on", ">secret", "~*", "&*", "+@all").Err())
		w.Logins[id] = id + ":secret@"
	}
}

// It lasts until the owner would have been swept, were it not for the refusals. No outage is noted:
// nothing but Redis keeps the owner away.
func (f *turnedAway) fail(w *environment) {
	ctx, owner := w.T.Context(), w.Follower()
	over := f.how(w, owner.ID)
	require.Positive(w.T, owner.Proxy.Reset())
	harness.Eventually(w.T, "its heartbeat ends", func() bool { return w.Exists(ctx, w.Heartbeat(owner.ID)).Val() == 0 })
	f.hit(1)
	harness.Lasting(grace + harness.Interval)
	require.NotEmpty(w.T, w.entriesOf(owner.ID), "entries of an owner that lives are gone")
	over()
	w.heals(time.Now())
}

// noConnections: somebody else has all the connections that Redis takes.
func noConnections(w *environment, _ string) (over func()) {
	w.config("maxclients", "1")
	return func() { w.config("maxclients", "10000") }
}

// noRights: the owner may not run scripts any more.
func noRights(w *environment, id string) (over func()) {
	require.NoError(w.T, w.acl(id, "-eval", "-evalsha").Err())
	return func() { require.NoError(w.T, w.acl(id, "+eval", "+evalsha").Err()) }
}

// noLogins: the owner's password is not the one that Redis has.
func noLogins(w *environment, id string) (over func()) {
	require.NoError(w.T, w.acl(id, "resetpass", ">another").Err())
	return func() { require.NoError(w.T, w.acl(id, ">secret").Err()) }
}

// powerRows: a site loses power. Replicas with new ids are back before Redis, which has kept its
// data, and the devices connect to them and say nothing more.
var powerRows = []row{
	{40, "PowerLost", true, 60, nil, powerLost(sweeping{})},
	{40, "PowerLostWhilePaused", false, 60, nil, powerLost(sweeping{pause: true})},
	{40, "PowerLostInADryRun", false, 60, map[string]string{"JANITOR_DRY_RUN": "true"}, powerLost(sweeping{dry: true})},
	{40, "PowerLostBesideWrongLogins", false, 60, nil, powerLost(sweeping{stranger: true})},
}

// sweeping is what keeps the leader from it.
type sweeping struct{ pause, dry, stranger bool }

func powerLost(s sweeping) func(w *environment) {
	return func(w *environment) {
		ctx := w.T.Context()
		w.Start("one", "two", "three")
		w.Spread(harness.Some(0, w.Fleet.Len()))
		w.Registered(0)
		w.Listened()
		if s.pause {
			w.Meddle("sweeping is paused", func(p redis.Pipeliner) { p.Set(ctx, w.Paused(), "by hand", 0) })
		}

		back := w.Outage("")
		w.Server.Kill()
		var parked []int
		for _, r := range slices.Clone(w.Replicas()) {
			_, lost := w.Kill(r)
			parked = append(parked, lost...)
		}
		require.Len(w.T, parked, w.Fleet.Len())
		var fleet []*harness.Replica
		for _, id := range []string{"four", "five", "six"} {
			fleet = append(fleet, w.Launch(w.Proxy(), id))
		}
		for _, r := range fleet { // after a TTL of trying
			r.Ready()
			w.Runs(r)
		}
		w.Spread(parked)
		w.CountersBeginAnew(w.Server.Restart)
		back()
		require.NotEmpty(w.T, w.entriesOf("one"), "Redis lost its data: this run proves nothing")
		w.Hit(len(parked))

		begun := time.Now()
		where := w.Fleet.Live()
		harness.Eventually(w.T, "every parked device is routable again", func() bool {
			if s.stranger {
				w.wrongLogin()
			}
			return w.routable(where)
		})
		w.within("all routable again, though their entries named the dead", time.Since(begun), grace+harness.Interval)
		w.endsSwept(s)
	}
}

// wrongLogin is somebody else whose password is wrong.
func (w *environment) wrongLogin() {
	o := w.Server.Options()
	o.Username, o.Password, o.MaxRetries = "exporter", "wrong", -1
	c := redis.NewClient(o)
	require.ErrorContains(w.T, c.Ping(w.T.Context()).Err(), "WRONGPASS")
	require.NoError(w.T, c.Close())
}

// endsSwept lets the leader sweep what is left of the dead: no entries.
func (w *environment) endsSwept(s sweeping) {
	switch {
	case s.pause:
		w.Meddle("sweeping is resumed", func(p redis.Pipeliner) { p.Del(w.T.Context(), w.Paused()) })
	case s.dry:
		w.Settings["JANITOR_DRY_RUN"] = "false"
		dry := slices.Clone(w.Replicas())
		w.Start("seven")
		for _, r := range dry {
			require.Zero(w.T, w.Terminate(r), r.Log())
		}
	}
	w.ends()
	v := w.judge()
	nothingWentOf(w, v, "four", "five", "six")
	if s.pause || s.dry {
		require.Zero(w.T, v.Evicted(""), "the devices' own replicas took them over before anybody swept")
	}
}

// nothingWentOf: nothing of these was evicted.
func nothingWentOf(w *environment, v *judge.Verdict, ids ...string) {
	w.T.Helper()
	for _, id := range ids {
		require.Zero(w.T, v.Evicted(id), "somebody who lives was evicted")
	}
}
