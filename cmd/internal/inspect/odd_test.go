package inspect

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

func TestATimelineOrAWordOfAReplicaThatIsOfAnotherTypeHidesNothingElse(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		ctx := t.Context()
		require.NoError(t, l.SAdd(ctx, l.keys.Roster(), "one", "two").Err())
		require.NoError(t, l.Set(ctx, l.keys.About("one"), `{"version":"v1","address":"10.0.0.1:8080"}`,
			0).Err())
		require.NoError(t, l.LPush(ctx, l.keys.About("two"), "x").Err())
		require.NoError(t, l.Set(ctx, l.keys.Timeline(), "x", 0).Err())
		l.evicted(l.term(time.Minute), 1, time.Minute, "seven", "owners", 3)

		watch := l.r.Watch()
		s, err := watch.Status(ctx)
		require.NoError(t, err)
		require.Len(t, s.Instances, 2)
		require.Equal(t, "v1", s.Instances[0].Version)
		require.Equal(t, []string{"eviction seven 3"}, lines(watch.Timeline()))
		require.Equal(t, Warning, l.check("types:"+l.keys.Timeline()).Level)

		require.NoError(t, l.Del(ctx, l.keys.Timeline()).Err())
		l.happened(timeline.Event{Kind: timeline.Death, Instance: "two"})
		require.Contains(t, lines(l.watched(watch)), "death two 0")
	})
}

func TestAUserWhoMayNotReadTheTimelineSeesTheFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx := t.Context()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.Do(ctx, "ACL", "SETUSER", "default", "resetkeys", "~instance*",
		"~connections:*",
		"~janitor:leader", "~{janitor:leader}*", "~janitor:witness", "~janitor:paused", "~janitor:log").Err())
	_, err := New(client, guard.Layout{}).Watch().Status(ctx)
	require.NoError(t, err)
}

func TestALeaderWhoseTermHasNotBegunDoesNotLeadYet(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		ctx := t.Context()
		require.NoError(t, l.SAdd(ctx, l.keys.Roster(), "two").Err())
		before, term := l.term(time.Hour), l.term(time.Minute)
		require.NoError(t, l.Set(ctx, l.keys.Lease(), "two/x", time.Minute).Err())
		require.NoError(t, l.Set(ctx, "{"+l.keys.Lease()+"}:epoch", term, 0).Err())
		led := func() bool { yes, _ := l.led(); return yes }
		require.False(t, led(), "the epoch is drawn, and the log has nothing yet")
		l.record(fmt.Sprintf("%d-0", before), "leader", "one", "term", "one/x")
		require.False(t, led(), "the log has the term before")
		require.Equal(t, Wrong, l.check("leader").Level)
		l.record(fmt.Sprintf("%d-0", term), "leader", "two", "term", "two/x")
		require.True(t, led())
		l.record(fmt.Sprintf("%d-1", term), "leader", "two", "owner", "seven", "sweep", "owners", "count", 1)
		require.NoError(t, l.XTrimMaxLen(ctx, l.keys.Log(), 1).Err())
		require.True(t, led(), "its beginning was trimmed")
	})
}

func TestWhyDoesNotClaimThatAnEvictionOfLongAgoIsTheLastWord(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		why := func() string {
			s := l.status()
			found, err := l.r.Why(t.Context(), s, "356307042441013")
			require.NoError(t, err)
			require.Equal(t, Evicted, found.Verdict)
			return found.Sentence
		}
		l.evicted(l.term(3*time.Hour), 1, 2*time.Hour, "seven", "owners", 1)
		require.Contains(t, why(), "if the device has come back since")
		l.evicted(l.term(3*time.Hour), 2, time.Second, "eight", "owners", 1)
		require.Regexp(t, "eight had no heartbeat$", why())
	})
}
