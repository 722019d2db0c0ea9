package chaos

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
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
		require.NoError(w, w.acl(id, "on", ">secret", "~*", "&*", "+@all").Err())
		w.Logins[id] = id + ":secret@"
	}
}

// It lasts until the owner would have been swept, were it not for the refusals. No outage is noted:
// nothing but Redis keeps the owner away.
func (f *turnedAway) fail(w *environment) {
	owner := w.Follower()
	over := f.how(w, owner.ID)
	require.Positive(w, owner.Proxy.Reset())
	harness.Eventually(w, "its heartbeat ends", func() bool { return !w.beats(owner.ID) })
	f.hit(1)
	harness.Lasting(grace + harness.Interval)
	require.NotEmpty(w, w.entriesOf(owner.ID), "entries of an owner that lives are gone")
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
	require.NoError(w, w.acl(id, "-eval", "-evalsha").Err())
	return func() { require.NoError(w, w.acl(id, "+eval", "+evalsha").Err()) }
}

// noLogins: the owner's password is not the one that Redis has.
func noLogins(w *environment, id string) (over func()) {
	require.NoError(w, w.acl(id, "resetpass", ">another").Err())
	return func() { require.NoError(w, w.acl(id, ">secret").Err()) }
}
