package janitor_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// scripted is a sweep whose requested passes a test scripts; all others do nothing.
type scripted struct {
	mu sync.Mutex
	do func(ctx context.Context, p *Pass) error
}

func (s *scripted) Name() string            { return "scripted" }
func (s *scripted) Interval() time.Duration { return time.Hour }
func (s *scripted) Run(ctx context.Context, p *Pass) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.Requested() {
		return nil
	}
	return s.do(ctx, p)
}

// leader starts a replica that leads with only this sweep.
func (s *scripted) leader(f *fleet, change func(*Config)) *replica {
	r := f.replica("r1", change)
	r.SweepsAre(s)
	f.t.Cleanup(r.start())
	pass(5 * time.Second)
	require.True(f.t, r.Status().Leading)
	return r
}

func (s *scripted) pass(r *replica, req Request, do func(ctx context.Context, p *Pass) error) Report {
	s.mu.Lock()
	s.do = do
	s.mu.Unlock()
	return r.sweep(req)["scripted"]
}

// witness is the expected WitnessStatus right after a tick.
func (f *fleet) witness(reason string, evicted uint64, instances int64) WitnessStatus {
	ms := func(field string) time.Time {
		at, err := f.HGet(f.t.Context(), f.Witness(), field).Int64()
		require.NoError(f.t, err)
		return time.UnixMilli(at)
	}
	now := time.Now()
	return WitnessStatus{
		Listening: time.UnixMilli(now.UnixMilli()).Sub(ms("since")).Seconds(),
		Reason:    reason, LastHold: ms("hold"), LastTick: now,
		Evicted: evicted, Instances: instances,
		ChecksOff: []string{"refused", "redis_evicting", "restarted"}, // miniredis cannot report these
	}
}

func (f *fleet) epoch() uint64 {
	epoch, err := f.Get(f.t.Context(), "{"+f.Lease()+"}:epoch").Uint64()
	require.NoError(f.t, err)
	return epoch
}

func TestStatusIsAllThatALeaderAndAFollowerKnow(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		imeis := f.entries("dead", 5)
		f.must(f.HSet(t.Context(), f.Registry(), "moved", "r1"))
		s := &scripted{}
		r := s.leader(f, func(c *Config) { c.RedisShare, c.ScanCount, c.DeleteBatch = 0.5, 700, 300 })
		follower := f.replica("r2", func(c *Config) { c.DryRun = true })
		defer follower.start()()

		begun := time.Now()
		rep := s.pass(r, Request{}, func(ctx context.Context, p *Pass) error {
			p.AddScanned(9)
			p.Skip(SkipUnreadable, 2)
			_, err := p.Delete(ctx, Batch{
				Owner: "dead", Body: guard.EvictEntries, Keys: guard.EntryKeys(f.Layout, "dead"),
				Items: append(imeis, "moved"),
			})
			wait.For(ctx, 3*time.Second)
			return err
		})
		require.Equal(t, Report{
			Sweep: "scripted", Epoch: f.epoch(), Outcome: Done, Scanned: 9, Condemned: 6, Evicted: 5,
			Spared: map[SkipReason]int{SkipUnreadable: 2, SkipReowned: 1}, Started: begun, Seconds: 3,
		}, rep)

		begun = time.Now()
		seen := make(chan struct{})
		asked := make(chan Report)
		go func() {
			asked <- s.pass(r, Request{Owner: "o", DryRun: true}, func(_ context.Context, p *Pass) error {
				p.AddTotal(200)
				p.AddScanned(50)
				<-seen
				return nil
			})
		}()
		pass(25 * time.Second)
		require.NoError(t, r.Pause(t.Context(), Pause{Who: "ops", Why: "migration"}))
		follower.Poke()
		synctest.Wait()
		want := Status{
			Instance: "r1", Leading: true, Leader: "r1", Epoch: f.epoch(),
			Paused: &Pause{Who: "ops", Why: "migration"}, Witness: f.witness("gap", 5, 2),
			Pace: &PaceStatus{Share: 0.5, Setting: 0.5, PageSize: 350, BatchSize: 180},
			Passes: []Progress{{
				Sweep: "scripted", Owner: "o", DryRun: true, Started: begun, Scanned: 50, Total: 200,
				PerSecond: 2, SecondsLeft: 75,
			}},
			Sweeps: []Report{rep}, Evicted: 5,
		}
		require.Equal(t, want, r.Status())
		followers := want
		followers.Instance, followers.Leading, followers.DryRun, followers.Evicted = "r2", false, true, 0
		followers.Pace, followers.Passes, followers.Sweeps = nil, nil, nil
		require.Equal(t, followers, follower.Status())

		close(seen)
		require.Equal(t, Report{
			Sweep: "scripted", Epoch: f.epoch(), Outcome: Done, DryRun: true, Owner: "o", Scanned: 50,
			Started: begun, Seconds: 25,
		}, <-asked)
		require.NoError(t, r.Resume(t.Context()))
		follower.Poke()
		synctest.Wait()
		require.Nil(t, r.Status().Paused, "its own tick is asked for at once")
		require.Nil(t, r.Status().Passes)
	})
}

func TestAReportSaysHowAPassEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		s := &scripted{}
		r := s.leader(f, nil)
		for _, c := range []struct {
			err  error
			want Report
		}{
			{nil, Report{Outcome: Done}},
			{&HeldError{Reason: "gap"}, Report{Outcome: Held, Reason: "gap"}},
			{errors.New("oh"), Report{Outcome: Failed, Error: "oh"}},
			{ErrFenced, Report{Outcome: Lost}},
		} {
			c.want.Sweep, c.want.Epoch, c.want.Started, c.want.Seconds = "scripted", f.epoch(), time.Now(), 2
			rep := s.pass(r, Request{}, func(ctx context.Context, _ *Pass) error {
				wait.For(ctx, 2*time.Second)
				return c.err
			})
			require.Equal(t, c.want, rep)
			require.Equal(t, []Report{c.want}, r.Status().Sweeps)
		}
	})
}

func TestStatusSaysWhyTheWitnessIsNotTicked(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var line broken
		s := &scripted{}
		r := s.leader(f, line.on)
		r.Poke()
		synctest.Wait()
		before := r.Status().Witness
		require.Empty(t, before.Error)

		mend := line.by("evalsha", io.ErrUnexpectedEOF)
		r.Poke()
		synctest.Wait()
		now := before
		now.Error = "guard: tick: unexpected EOF"
		require.Equal(t, now, r.Status().Witness, "what was known stays")
		pass(timing.Gap() + time.Second)
		now.Listening = 0
		require.Equal(t, now, r.Status().Witness, "nobody knows what happened meanwhile")

		mend()
		r.Poke()
		synctest.Wait()
		require.Equal(t, f.witness("gap", 0, 1), func() WitnessStatus {
			w := r.Status().Witness
			require.Positive(t, w.HeldFor)
			w.HeldFor = 0
			return w
		}())
	})
}

// Failed calls return the error of the server or the line, and name the operation.
func TestWhatAsksRedisReturnsItsErrorAndSaysWhatItAsked(t *testing.T) {
	batch := Batch{Owner: "dead", Body: guard.EvictEntries, Keys: []string{"k"}, Items: []string{"x"}}
	for name, c := range map[string]struct {
		command string // the command that fails
		says    string
		do      func(ctx context.Context, r *replica, p *Pass) error
	}{
		"Pause":  {"set", "janitor: pause: ", func(ctx context.Context, r *replica, _ *Pass) error { return r.Pause(ctx, Pause{}) }},
		"Resume": {"del", "janitor: resume: ", func(ctx context.Context, r *replica, _ *Pass) error { return r.Resume(ctx) }},
		"CheckHeld": {"getrange", "janitor: read pause: ", func(ctx context.Context, _ *replica, p *Pass) error {
			return p.CheckHeld(ctx)
		}},
		"Roster": {"evalsha", "guard: read records: ", func(ctx context.Context, _ *replica, p *Pass) error {
			_, err := p.Roster(ctx)
			return err
		}},
		"Roster, of heartbeats": {"pttl", "janitor: judge owners: ", func(ctx context.Context, r *replica, p *Pass) error {
			r.f.dies("other")
			_, err := p.Roster(ctx)
			return err
		}},
		"Liveness": {"pttl", "janitor: judge owners: ", func(ctx context.Context, _ *replica, p *Pass) error {
			_, err := p.Liveness(ctx, []string{"dead"})
			return err
		}},
		"pages": {"sscan", "", func(ctx context.Context, r *replica, p *Pass) (err error) {
			for _, err = range guard.Members(ctx, p.Client(), r.f.Roster(), p.Paging()) {
			}
			return err
		}},
		"Delete, of the pause": {"getrange", "janitor: read pause: ", func(ctx context.Context, _ *replica, p *Pass) error {
			_, err := p.Delete(ctx, batch)
			return err
		}},
		"Delete, of the records": {"evalsha", "guard: read records: ", func(ctx context.Context, _ *replica, p *Pass) error {
			_, err := p.Delete(ctx, batch)
			return err
		}},
		"Forget, of the pause": {"getrange", "janitor: read pause: ", func(ctx context.Context, _ *replica, p *Pass) error {
			return p.Forget(ctx, "dead")
		}},
		"Forget": {"evalsha", "guard: forget owner: ", func(ctx context.Context, _ *replica, p *Pass) error {
			return p.Forget(ctx, "dead")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				defer f.beat("third")()
				f.live("other")
				var line broken
				s := &scripted{}
				r := s.leader(f, line.on)
				for _, fault := range []error{io.ErrUnexpectedEOF, refusal("NOPERM no")} {
					f.live("other")
					pass(beatEvery/3 + time.Second) // makes earlier readings stale
					var err error
					rep := s.pass(r, Request{}, func(ctx context.Context, p *Pass) error {
						defer line.by(c.command, fault)()
						err = c.do(ctx, r, p)
						return err
					})
					require.ErrorIs(t, err, fault)
					require.ErrorContains(t, err, c.says)
					require.Equal(t, Failed, rep.Outcome)
					require.Equal(t, err.Error(), rep.Error)
				}
			})
		})
	}
}

func TestAFollowerThatCannotAskWhoLeadsSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var line broken
		r := f.replica("r1", line.on)
		line.by("getrange", io.ErrUnexpectedEOF)
		_, err := r.Janitor.Sweep(t.Context(), Request{})
		for _, err := range []error{err, r.Resign(t.Context())} {
			var not *NotLeaderError
			require.ErrorAs(t, err, &not)
			require.Empty(t, not.Leader)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.ErrorContains(t, err, "janitor: not the leader; nobody leads at present")
			require.ErrorContains(t, err, "lease: read the holder")
		}
	})
}

// series returns a replica's series by name and labels, for histograms the sum.
func (r *replica) series() map[string]float64 {
	families, err := r.scraped.Gather()
	require.NoError(r.f.t, err)
	all := map[string]float64{}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), "janitor_")
		if !ours {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := make([]string, 0, 2)
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			all[strings.TrimSpace(name+" "+strings.Join(labels, " "))] =
				m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return all
}

func TestEverySeriesExistsBeforeItCountsAndCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		s := &scripted{}
		r := f.replica("r1", func(c *Config) {
			c.RedisShare = 0.5
			c.Sweeps = []Sweeper{s}
		})
		want := map[string]float64{
			"leader": 0, "dry_run": 0, "lease_epoch": 0, "witness_seconds": 0, "redis_share": 0,
			"full_scan_due_timestamp_seconds": 0, "owners_died_total": 0, "evicted_total": 0, "redis_full": 0,
			"throttled_seconds_total latency": 0, "throttled_seconds_total heartbeat": 0,
		}
		for name, labels := range map[string][]string{
			"lease_transitions_total": {"acquired", "lost", "released"},
			"spared_total":            {"alive", "reowned", "fenced", "held", "unreadable", "doubted"},
			"doubted_owners":          {"most", "refused"},
			"held_total": {
				"gap", "restarted", "redis_evicting", "settings", "self_check", "paused",
				"pause_unknown",
			},
			"pass_progress_ratio": {"owners", "registry", "scripted"},
			"scanned_total":       {"owners", "registry", "scripted"},
		} {
			for _, label := range labels {
				want[name+" "+label] = 0
			}
		}
		for _, sweep := range []string{"owners", "registry", "scripted"} {
			for _, outcome := range []string{"done", "held", "failed", "lost"} {
				want["passes_total "+outcome+" "+sweep] = 0
			}
		}
		require.Equal(t, want, r.series())

		r.SweepsAre(s)
		f.live("other")
		f.record("other", doubt.Holds, 38*time.Second, beatTTL) // it is late
		stop := r.start()
		pass(5 * time.Second)
		n := 0.0
		for label := range maps.Clone(want) {
			if reason, ok := strings.CutPrefix(label, "spared_total "); ok {
				n++
				rep := s.pass(r, Request{}, func(_ context.Context, p *Pass) error {
					p.Skip(SkipReason(reason), int(n))
					p.Skip(SkipReason(reason), 0)
					return nil
				})
				require.Equal(t, map[SkipReason]int{SkipReason(reason): int(n)}, rep.Spared)
				want[label] = n
			}
			if reason, ok := strings.CutPrefix(label, "held_total "); ok {
				s.pass(r, Request{}, func(context.Context, *Pass) error { return &HeldError{Reason: reason} })
				want[label] = 1
			}
		}
		s.pass(r, Request{}, func(context.Context, *Pass) error { return errors.New("oh") })
		s.pass(r, Request{}, func(context.Context, *Pass) error { return ErrFenced })
		// A late heartbeat: sweeps rest longer than their share requires.
		f.must(f.PExpire(t.Context(), f.Heartbeat("other"), beatTTL-beatEvery-beatEvery/2))
		f.live("new")
		done := s.pass(r, Request{}, func(ctx context.Context, p *Pass) error {
			p.AddTotal(36)
			p.AddScanned(9)
			require.InDelta(t, 0.25, r.value("janitor_pass_progress_ratio", "sweep", "scripted"), 1e-9)
			_, err := p.Roster(ctx)
			for range 10 {
				_ = p.Call(ctx, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
			}
			return err
		})
		require.Equal(t, Done, done.Outcome)
		after := r.series()
		want["leader"], want["lease_epoch"] = 1, float64(f.epoch())
		want["lease_transitions_total acquired"] = 1
		want["last_success_timestamp_seconds scripted"] = float64(time.Now().UnixNano()) / 1e9
		want["scanned_total scripted"] = 9
		want["passes_total done scripted"] = 1 + 6 + 1
		want["passes_total held scripted"] = 7
		want["passes_total failed scripted"] = 1
		want["passes_total lost scripted"] = 1
		for _, name := range []string{"witness_seconds", "redis_share", "throttled_seconds_total heartbeat"} {
			require.Positive(t, after[name], name)
			want[name] = after[name]
		}
		want["pass_duration_seconds scripted"] = done.Seconds
		require.Equal(t, want, after)

		f.must(f.Set(t.Context(), f.Lease(), "other/1", time.Second))
		pass(time.Minute)
		stop()
		require.InDelta(t, 1, r.value("janitor_lease_transitions_total", "event", "lost"), 0)
		require.InDelta(t, 1, r.value("janitor_lease_transitions_total", "event", "released"), 0)
		require.InDelta(t, 2, r.value("janitor_lease_transitions_total", "event", "acquired"), 0)
		after = r.series()
		require.Zero(t, after["leader"])
		require.Zero(t, after["redis_share"])
	})
}
