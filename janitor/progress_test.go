package janitor_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

func TestAHeartbeatIsAliveUnlessItIsClearlyAbsent(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		require.NoError(t, f.Set(t.Context(), f.Heartbeat("expires"), "0/0", time.Minute).Err())
		require.NoError(t, f.Set(t.Context(), f.Heartbeat("for ever"), "0/0", 0).Err())
		require.NoError(t, f.RPush(t.Context(), f.Heartbeat("a list"), "x").Err())
		r := f.silentReplica("r1", nil)
		found, left, err := r.Heartbeats(t.Context(), []string{"expires", "for ever", "a list", "absent", "c\x00", "r1"})
		require.NoError(t, err)
		require.Equal(t, map[string]Liveness{
			"expires": Alive, "for ever": Alive, "a list": Alive, "absent": Dead, "c\x00": Unreadable, "r1": Dead,
		}, found)
		require.Len(t, left, 1)
		require.InDelta(t, 60, left["expires"].Seconds(), 20)
	})
}

func TestHowFarAPassIsCanBeSeen(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		seen := make(chan struct{})
		r := f.replica("r1", func(c *Config) {
			c.RedisShare = 0.5
			c.Sweeps = []Sweeper{fakeSweep{name: "slow", pass: func(ctx context.Context, p *Pass) error {
				p.AddTotal(200)
				p.AddScanned(50)
				select {
				case <-seen:
				case <-ctx.Done():
				}
				return nil
			}}}
		})
		progress := func() float64 { return r.value("janitor_pass_progress_ratio", "sweep", "slow") }
		r.start()
		f.eventually(func() bool { return progress() > 0 })
		require.InDelta(t, 0.25, progress(), 1e-9)
		st := r.Status()
		i := len(st.Passes) - 1
		require.Equal(t, "slow", st.Passes[i].Sweep)
		require.Equal(t, 50, st.Passes[i].Scanned)
		require.Equal(t, 200, st.Passes[i].Total)
		require.Positive(t, st.Passes[i].SecondsLeft)
		require.InDelta(t, 0.5, st.Pace.Setting, 0)
		require.Positive(t, st.Pace.Share)
		require.Positive(t, r.scrape("janitor_redis_share"))
		close(seen)
		f.eventually(func() bool { return r.report("slow").Outcome == Done })
		require.Zero(t, progress())
	})
}

// In real time on a real server, a second client takes 60 % of it, six milliseconds at a time. Only
// a quiet machine could show the recovery: the simulations do.
func TestASecondClientOfARealRedisIsFelt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--enable-debug-command", "local")
	f := setup(t, redistest.World{Client: s.Client(), Options: s.Options(), Prefix: redistest.Prefix(t), Real: true})
	f.live("other")
	f.entries("other", 2000)
	r := f.replica("r1", func(c *Config) {
		c.RedisShare = 0.5
		c.Sweeps = []Sweeper{fakeSweep{name: "busy", pass: func(ctx context.Context, p *Pass) error {
			for ctx.Err() == nil {
				err := p.Call(ctx, func(ctx context.Context) error {
					return p.Client().HScan(ctx, p.Layout().Registry(), 0, "", int64(p.PageSize())).Err()
				})
				if err != nil {
					return err
				}
			}
			return nil
		}}}
	})
	stop := r.start()
	// small calls: the usual latency is known
	measured := regexp.MustCompile(`cmdstat_pttl:calls=([2-9]\d|\d{3,}),`)
	f.eventually(func() bool { return measured.MatchString(f.Info(t.Context(), "commandstats").Val()) })

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var client conc.WaitGroup
	client.Go(func() {
		for wait.For(ctx, 4*time.Millisecond) {
			// A script that loops on TIME would never end: since Redis 7.2 the clock stands still
			// within a script.
			_ = f.Do(ctx, "DEBUG", "SLEEP", "0.006").Err()
		}
	})
	begun := time.Now()
	var pace *PaceStatus
	f.eventually(func() bool {
		pace = r.Status().Pace // nil between two terms: a busy machine may lose the lease
		return pace != nil && pace.Share <= 0.25
	})
	t.Log("felt after", time.Since(begun))
	require.NotEmpty(t, pace.Throttled)
	cancel()
	client.Wait()
	stop()
}

func TestAPassThatWasAskedForMayWantAnotherOneSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.listenedFor(time.Hour)
		defer f.beat("r1")()
		s := &scripted{}
		r := s.leader(f, nil)
		started := func() time.Time { return r.Status().Sweeps[0].Started }
		wants := func(in time.Duration) time.Time {
			rep := s.pass(r, Request{}, func(_ context.Context, p *Pass) error {
				p.RunAgain(time.Now().Add(in))
				return nil
			})
			return rep.Started
		}
		asked := wants(2 * time.Minute)
		pass(3 * time.Minute)
		require.Equal(t, 2*time.Minute, started().Sub(asked))
		// The next one is an hour after that: a further request does not postpone it.
		own := started()
		pass(30 * time.Minute)
		wants(50 * time.Minute)
		pass(31 * time.Minute)
		require.Equal(t, time.Hour, started().Sub(own))
	})
}
