package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// inBubble calls f with a reader that is not running, on the bubble's clock.
func inBubble(t *testing.T, f func(t *testing.T, r *Reader, rdb *redis.Client)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(123_456 * time.Microsecond) // no whole second
		rdb := redis.NewClient(redistest.Fake(t))
		defer rdb.Close()
		f(t, lone("a", registry.Layout{}, rdb), rdb)
	})
}

// added adds a command of this age that expired this long ago.
func (r *Reader) added(t *testing.T, rdb *redis.Client, added, expires time.Duration) entry {
	now := time.Now()
	at, err := rdb.XAdd(t.Context(), &redis.XAddArgs{
		Stream: r.stream, ID: fmt.Sprintf("%d-0", now.Add(-added).UnixMilli()), Values: []any{"id", "c1", "imei", imei, "text", "x"},
	}).Result()
	require.NoError(t, err)
	return entry{stream: r.stream, at: at, Command: Command{
		ID: "c1", IMEI: imei, Text: "x", Codec: 12, Expires: time.UnixMilli(now.Add(-expires).UnixMilli()),
	}}
}

// marks sets the state of a command, with LIFE, STREAM and ENTRY in place of the reader's own.
func (r *Reader) marks(t *testing.T, rdb *redis.Client, e entry, mark string) {
	mark = strings.NewReplacer("LIFE", r.lifeOf(e), "STREAM", r.stream, "ENTRY", e.at).Replace(mark)
	require.NoError(t, rdb.Set(t.Context(), state(r.layout, "c1"), mark, 0).Err())
}

func TestWhatIsTakenIsJudgedByItsTimeItsMarkAndTheRegistry(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	type row struct {
		added, expires       time.Duration // ago
		mark, owner, verdict string
	}
	rows := map[string]row{}
	for name, c := range map[string]row{
		"no mark":                     {verdict: verdictSend},
		"its own mark":                {mark: "sent LIFE STREAM ENTRY", verdict: verdictSend},
		"its own, the device moved":   {mark: "sent LIFE STREAM ENTRY", owner: "b", verdict: verdictSend},
		"an earlier life's":           {mark: "sent 0.earlier/a STREAM ENTRY", verdict: verdictTaken},
		"another entry's":             {mark: "sent LIFE STREAM 1-1", verdict: verdictDuplicate},
		"another stream's":            {mark: "sent LIFE elsewhere ENTRY", verdict: verdictDuplicate},
		"its outcome":                 {mark: "answered LIFE STREAM ENTRY", verdict: verdictDuplicate},
		"nothing that is understood":  {mark: "sent", verdict: verdictDuplicate},
		"the registry names this one": {owner: "a", verdict: verdictSend},
		"the registry names another":  {owner: "b", verdict: verdictMoved},
	} {
		c.expires = -time.Minute
		rows[name] = c
	}
	for _, c := range []row{
		{0, -ms, "", "", verdictSend}, {0, -48 * time.Hour, "", "", verdictSend},
		{2 * time.Hour, -ms, "", "", verdictSend},
		{0, 0, "", "", verdictExpired}, {0, time.Hour, "", "", verdictExpired},
		{time.Hour, time.Hour - ms, "", "", verdictExpired}, {time.Hour - ms, time.Hour, "", "", verdictExpired},
		{25 * time.Hour, 24 * time.Hour, "", "", verdictExpired},
	} {
		rows[fmt.Sprint(c.added, c.expires)] = c
	}
	for name, c := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, r *Reader, rdb *redis.Client) {
				e, ctx, key := r.added(t, rdb, c.added, c.expires), t.Context(), state(r.layout, "c1")
				if c.mark != "" {
					r.marks(t, rdb, e, c.mark)
				}
				if c.owner != "" {
					require.NoError(t, rdb.HSet(ctx, r.layout.Registry(), imei, c.owner).Err())
				}
				duplicate, sends := c.verdict == verdictDuplicate, c.verdict == verdictSend
				for again := 0; again < 2 && (again == 0 || !duplicate); again++ { // the same life gets the same answer
					verdict, left, owner, err := r.take(ctx, e)
					require.NoError(t, err)
					require.Equal(t, c.verdict, verdict)
					if c.verdict == verdictMoved {
						require.Equal(t, c.owner, owner)
					}
					require.Equal(t, map[bool]time.Duration{false: -c.expires}[duplicate], left)
				}
				require.Equal(t, !duplicate, rdb.XLen(ctx, r.stream).Val() == 1)
				marks := rdb.XPending(ctx, r.stream, group).Val()
				require.Equal(t, sends, marks != nil && marks.Count == 1)
				switch {
				case sends:
					require.Equal(t, "sent "+r.lifeOf(e)+" "+r.stream+" "+e.at, rdb.Get(ctx, key).Val())
					require.Equal(t, min(-c.expires, 24*time.Hour)+time.Hour, rdb.PTTL(ctx, key).Val())
				case c.mark == "":
					require.Zero(t, rdb.Exists(ctx, key).Val())
				}
			})
		})
	}
	inBubble(t, func(t *testing.T, r *Reader, rdb *redis.Client) {
		e := r.added(t, rdb, 0, -time.Minute)
		require.NoError(t, rdb.Del(t.Context(), r.stream).Err())
		verdict, left, _, err := r.take(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, verdictGone, verdict)
		require.Zero(t, left)
	})
}

func TestAnOutcomeIsRememberedForAnHourAfterTheCommandExpires(t *testing.T) {
	t.Parallel()
	for expires, kept := range map[time.Duration]time.Duration{
		-time.Minute: time.Hour + time.Minute, 0: time.Hour, 3 * time.Hour: time.Hour,
		-24 * time.Hour: 25 * time.Hour, -48 * time.Hour: 25 * time.Hour,
	} {
		inBubble(t, func(t *testing.T, r *Reader, rdb *redis.Client) {
			e, ctx, key := r.added(t, rdb, 0, expires), t.Context(), state(r.layout, "c1")
			for range 2 { // asked again after a lost reply
				added, err := r.add(ctx, e, Answered, "done")
				require.NoError(t, err)
				require.Equal(t, string(Answered), added)
			}
			require.Equal(t, kept, rdb.PTTL(ctx, key).Val())
			require.Equal(t, "answered "+r.lifeOf(e)+" "+r.stream+" "+e.at, rdb.Get(ctx, key).Val())
			require.Equal(t, []Outcome{{"c1", imei, "a", Answered, "done"}}, outcomes(t, rdb, r.layout))
		})
	}
}

func TestWhatAnOutcomeSaysOfACommandThatMayHaveBeenSent(t *testing.T) {
	t.Parallel()
	const restarted = "sent by a, which reported no outcome; the device may have executed it"
	for name, c := range map[string]struct {
		mark   string
		status Status
		text   string
		want   Outcome // without the fields that all share
		added  string
	}{
		"sent by this life":      {"sent LIFE STREAM ENTRY", Answered, "done", Outcome{Status: Answered, Text: "done"}, "answered"},
		"sent by an earlier one": {"sent 0.earlier/a STREAM ENTRY", Answered, "done", Outcome{Status: InstanceLost, Text: restarted}, "instance_lost"},
		"ambiguous":              {"sent LIFE STREAM ENTRY", MaybeAnswered, "a\nb", Outcome{Status: MaybeAnswered, Text: "a\nb"}, "answered"},
		"ambiguous, and earlier": {"sent 0.earlier/a STREAM ENTRY", MaybeAnswered, "a", Outcome{Status: InstanceLost, Text: restarted}, "instance_lost"},
		"stopped":                {"", InstanceLost, "stopped", Outcome{Status: InstanceLost, Text: "stopped"}, "instance_lost"},
		"no socket":              {"", NotConnected, "", Outcome{Status: NotConnected}, "not_connected"},
		"its own, and lost":      {"sent LIFE STREAM ENTRY", InstanceLost, "", Outcome{Status: InstanceLost}, "instance_lost"},
		"another entry's":        {"sent LIFE STREAM 1-1", Answered, "done", Outcome{}, verdictDuplicate},
		"an earlier outcome":     {"answered earlier STREAM ENTRY", Answered, "done", Outcome{}, verdictDuplicate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, r *Reader, rdb *redis.Client) {
				e, ctx := r.added(t, rdb, 0, -time.Minute), t.Context()
				if c.mark != "" {
					r.marks(t, rdb, e, c.mark)
				}
				added, err := r.add(ctx, e, c.status, c.text)
				require.NoError(t, err)
				require.Equal(t, c.added, added)
				require.Zero(t, rdb.XLen(ctx, r.stream).Val())
				all := outcomes(t, rdb, r.layout)
				require.Equal(t, c.added != verdictDuplicate, len(all) == 1)
				for _, o := range all {
					c.want.ID, c.want.IMEI, c.want.Instance = "c1", imei, "a"
					require.Equal(t, c.want, o)
				}
			})
		})
	}
}

func TestReadsThatFailAreTriedAgainAtGrowingDistancesAndSoonAfterTheyWentWell(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, r *Reader, rdb *redis.Client) {
		var refuses atomic.Bool // reads of the stream
		var at []time.Time
		refuses.Store(true)
		rdb.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if cmds[0].Name() == "xread" && refuses.Load() {
				at = append(at, time.Now())
				return redistest.Fail(cmds, errors.New("refused by the test"))
			}
			return send()
		}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		pauses := func() (all []int) { // ms
			synctest.Wait()
			for i := 1; i < len(at); i++ {
				all = append(all, int(at[i].Sub(at[i-1]).Milliseconds()))
			}
			return all
		}
		time.Sleep(17 * time.Second)
		require.Equal(t, []int{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000}, pauses())

		refuses.Store(false)
		time.Sleep(time.Minute) // they go well
		at = nil
		refuses.Store(true)
		time.Sleep(time.Minute)
		require.Equal(t, []int{50, 100, 200, 400}, pauses()[:4])
		stop()
		require.NoError(t, <-ended)
	})
}
