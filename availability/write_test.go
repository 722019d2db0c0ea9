package availability

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
)

// order notes in which order the source and Redis are asked.
type order struct {
	mu    sync.Mutex
	steps []string
}

func (o *order) note(step string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.steps = append(o.steps, step)
}

func (o *order) taken() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	steps := o.steps
	o.steps = nil
	return steps
}

// writes are all that change something, each as a step from the state before, behind what the
// source is asked for.
var writes = []string{
	"SetOnline: online a", "Accept: accept s1 a", "Accept: accept s2 a", "Accept: accept s3 a", "Extend: extend s1 unpaid",
	"Reroute: reroute s1 b", "Extend: extend s1 paid", "End: end s1 completed", "End: end s2 cancelled",
	"End: end s3 expired", "SetActive: deactivate a", "SetActive: activate a", "SetOnline: offline a",
}

func (r *rig) writes(ctx context.Context, step string) (err error) {
	words := append(strings.Fields(step), "")
	switch first, second := words[1], words[2]; words[0] {
	case "online":
		_, err = r.Online(ctx, first)
	case "offline":
		_, err = r.Offline(ctx, first)
	case "deactivate":
		_, err = r.Deactivate(ctx, first)
	case "activate":
		_, err = r.Activate(ctx, first)
	case "accept":
		_, err = r.Accept(ctx, first, second)
	case "reroute":
		_, err = r.Reroute(ctx, first, second)
	case "extend":
		_, err = r.Extend(ctx, first, second == "paid")
	case "end":
		_, err = r.End(ctx, first, second)
	}
	return err
}

// searching makes sessions that are searching.
func (f *fake) searching(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.sessions[id] = Session{ID: id, Status: "searching"}
	}
}

// What the source refuses is not brought.
func TestEachWriterCommitsInTheSourceFirstAndBringsItRightAfter(t *testing.T) {
	onWhole(t, newFake(State{ID: "a", Active: true}, State{ID: "b", Active: true}), func(r *rig) {
		r.source.searching("s1", "s2", "s3")
		fine(r, r.Settings)
		var o order
		r.before(func(redis.Cmder) error { o.note("redis"); return nil })
		failed := errors.New("no disk")
		for _, write := range writes {
			op, step, _ := strings.Cut(write, ": ")
			r.source.at(op, func() error { return failed })
			r.ErrorIs(r.writes(r.ctx, step), failed, step)
			r.Empty(o.taken(), step)
			r.source.fault.set(func(op string) error { o.note(op); return nil })
			r.NoError(r.writes(r.ctx, step), step)
			// The first time, the server asks for the script's text.
			r.Equal([]string{op, op + " committed", "redis"}, slices.Compact(o.taken()), step)
			r.same()
		}
		for session, status := range map[string]string{"s1": "completed", "s2": "cancelled", "s3": "expired"} {
			r.Equal(status, r.source.sessions[session].Status)
		}
	})
}

func TestAWriteStandsThoughRedisIsAwayAndTheFeedBringsIt(t *testing.T) {
	onWhole(t, newFake(State{ID: "a", Active: true}, State{ID: "b", Active: true}), func(r *rig) {
		source := r.source
		source.searching("s1", "s2", "s3")
		r.did(r.Settings(r.ctx))
		away := true
		r.before(func(redis.Cmder) error {
			if away {
				return errors.New("connection refused")
			}
			return nil
		})
		for _, write := range writes {
			_, step, _ := strings.Cut(write, ": ")
			r.NoError(r.writes(r.ctx, step), step)
		}
		r.InDelta(len(writes), testutil.ToFloat64(r.metrics.applyFailed), 0, "each is counted")
		r.Len(r.differences(), 2)
		f := newFeed(r.Mirror)
		f.cursor = Cursor{Xmin: 1}
		r.Error(f.read(r.ctx))
		away = false
		r.NoError(f.read(r.ctx), "from where the last one began that arrived")
		r.same()
	})
}

func TestAWriteWhoseCallerWentAwayStillReachesRedis(t *testing.T) {
	onWhole(t, newFake(State{ID: "a", Active: true}), func(r *rig) {
		source := r.source
		ctx, cancel := context.WithCancel(r.ctx)
		source.fault.set(func(op string) error {
			if op == "SetOnline committed" {
				cancel()
			}
			return nil
		})
		r.did(r.Online(ctx, "a"))
		r.same()
	})
}

func TestARerouteIsSeenOnBothOrOnNeither(t *testing.T) {
	onWhole(t, newFake(online("a"), online("b")), func(r *rig) {
		source := r.source
		source.searching("s")
		r.did(r.Accept(r.ctx, "s", "a"))
		stop, ended := make(chan struct{}), make(chan int)
		go func() {
			for wrong := 0; ; {
				select {
				case <-stop:
					ended <- wrong
					return
				default:
				}
				n, err := r.client.MGet(context.Background(), r.keys.capacity("a"), r.keys.capacity("b")).Result()
				if err != nil || fmt.Sprint(n) != "[1 0]" && fmt.Sprint(n) != "[0 1]" {
					wrong++
				}
			}
		}()
		for i := range 100 {
			r.did(r.Reroute(r.ctx, "s", []string{"b", "a"}[i%2]))
		}
		close(stop)
		r.Zero(<-ended)
		r.same()
	})
}

func TestAHeartbeatIsOneRoundTripAndAsksNoSource(t *testing.T) {
	onWhole(t, newFake(online("a")), func(r *rig) {
		source := r.source
		_, err := r.Heartbeat(r.ctx, "a") // the server knows the script then
		r.NoError(err)
		before := r.mirrored("a").Seen
		calls, asked := 0, 0
		r.before(func(redis.Cmder) error { calls++; return nil })
		source.fault.set(func(string) error { asked++; return nil })
		r.later(before)
		r.beats("a", BeatKept)
		r.Equal(1, calls)
		r.Zero(asked)
		r.True(r.mirrored("a").Seen.After(before))
		r.Equal(time.Duration(-1), r.client.TTL(r.ctx, r.keys.heartbeat("a")).Val(), "no TTL")
	})
}

func TestAHeartbeatIsOfTheServersTimeWhateverTheClientBelieves(t *testing.T) {
	onWhole(t, newFake(online("a")), func(r *rig) {
		ctx, keys := r.ctx, []string{r.keys.heartbeat("a")}
		for _, ahead := range []time.Duration{-time.Hour, -time.Minute, 0, time.Minute, time.Hour} {
			before, err := r.client.Time(ctx).Result()
			r.NoError(err)
			minute := before.UTC().Truncate(time.Minute).Add(ahead)
			r.NoError(heartbeatScript.Run(ctx, r.rdb, keys, "a", minute.Unix(),
				minute.Format("2006-01-02T15:04:")).Err())
			after, err := r.client.Time(ctx).Result()
			r.NoError(err)
			seen := r.mirrored("a").Seen
			r.False(seen.Before(before.Truncate(time.Millisecond)), "%s ahead", ahead)
			r.False(seen.After(after), "%s ahead", ahead)
			r.Len(r.client.Get(ctx, keys[0]).Val(), len(isoMS))
		}
	})
}

func TestAHeartbeatIsRefusedByName(t *testing.T) {
	off := online("off")
	off.Active = false
	onWhole(t, newFake(online("a"), off, State{ID: "offline", Active: true}), func(r *rig) {
		r.beats("a", BeatKept)
		r.beats("off", BeatDeactivated)
		r.beats("offline", BeatNotOnline)
		r.beats("nobody", BeatNotOnline)

		r.redis("DEL", r.keys.seeded())
		r.beats("a", BeatUnseeded)
		r.beats("offline", BeatUnseeded)
		r.beats("off", BeatDeactivated)
		r.seeded()
		r.True(r.mirrored("offline").Seen.IsZero(), "a seeding takes the heartbeat of one who is offline")

		r.did(r.Online(r.ctx, "offline"))
		r.beats("offline", BeatKept)
		r.did(r.Deactivate(r.ctx, "a"))
		r.beats("a", BeatDeactivated)
	})
}
