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
	*replica // that leads with it alone
	mu       sync.Mutex
	do       func(ctx context.Context, p *Pass) error
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

// scripted starts a replica that leads with only such a sweep.
func (f *fleet) scripted(change ...func(*Config)) *scripted {
	s := &scripted{replica: f.replica("r1", append(change, nil)[0])}
	s.SweepsAre(s)
	s.start()
	pass(5 * time.Second)
	require.True(f, s.Status().Leading)
	return s
}

// asked requests a pass that does this.
func (s *scripted) asked(req Request, do func(ctx context.Context, p *Pass) error) Report {
	s.mu.Lock()
	s.do = do
	s.mu.Unlock()
	return s.sweep(req)["scripted"]
}

// evicts deletes entries of the dead owner.
func evicts(ctx context.Context, p *Pass, imeis ...string) error {
	a, err := p.Delete(ctx, Batch{
		Owner: "dead", Body: guard.EvictEntries, Keys: guard.EntryKeys(p.Layout(), "dead"), Items: imeis,
	})
	if err == nil && a.Verdict != guard.Done {
		err = errors.New(string(a.Verdict))
	}
	return err
}

// witness is the expected WitnessStatus right after a tick.
func (f *fleet) witness(reason string, evicted uint64, instances int64) WitnessStatus {
	ms := func(field string) time.Time {
		at, err := f.HGet(f.Context(), f.Witness(), field).Int64()
		require.NoError(f, err)
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
	epoch, err := f.Get(f.Context(), "{"+f.Lease()+"}:epoch").Uint64()
	require.NoError(f, err)
	return epoch
}

func TestStatusIsAllThatALeaderAndAFollowerKnow(t *testing.T) {
	inBubble(t, func(f *fleet) {
		imeis := f.entries("dead", 5)
		f.do("HSET", f.Registry(), "moved", "r1")
		s := f.scripted(func(c *Config) { c.RedisShare, c.ScanCount, c.DeleteBatch = 0.5, 700, 300 })
		follower := f.replica("r2", func(c *Config) { c.DryRun = true })
		defer follower.start()()

		begun := time.Now()
		rep := s.asked(Request{}, func(ctx context.Context, p *Pass) error {
			p.AddScanned(9)
			p.Skip(SkipUnreadable, 2)
			err := evicts(ctx, p, append(imeis, "moved")...)
			wait.For(ctx, 3*time.Second)
			return err
		})
		require.Equal(f, Report{
			Sweep: "scripted", Epoch: f.epoch(), Outcome: Done, Scanned: 9, Condemned: 6, Evicted: 5,
			Spared: map[SkipReason]int{SkipUnreadable: 2, SkipReowned: 1}, Started: begun, Seconds: 3,
		}, rep)

		begun = time.Now()
		seen := make(chan struct{})
		asked := make(chan Report)
		go func() {
			asked <- s.asked(Request{Owner: "o", DryRun: true}, func(_ context.Context, p *Pass) error {
				p.AddTotal(200)
				p.AddScanned(50)
				<-seen
				return nil
			})
		}()
		pass(25 * time.Second)
		require.NoError(f, s.Pause(f.Context(), Pause{Who: "ops", Why: "migration"}))
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
		require.Equal(f, want, s.Status())
		followers := want
		followers.Instance, followers.Leading, followers.DryRun, followers.Evicted = "r2", false, true, 0
		followers.Pace, followers.Passes, followers.Sweeps = nil, nil, nil
		require.Equal(f, followers, follower.Status())

		close(seen)
		require.Equal(f, Report{
			Sweep: "scripted", Epoch: f.epoch(), Outcome: Done, DryRun: true, Owner: "o", Scanned: 50,
			Started: begun, Seconds: 25,
		}, <-asked)
		require.NoError(f, s.Resume(f.Context()))
		follower.Poke()
		synctest.Wait()
		require.Nil(f, s.Status().Paused, "its own tick is asked for at once")
		require.Nil(f, s.Status().Passes)
	})
}

func TestAReportSaysHowAPassEnded(t *testing.T) {
	inBubble(t, func(f *fleet) {
		s := f.scripted()
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
			rep := s.asked(Request{}, func(ctx context.Context, _ *Pass) error {
				wait.For(ctx, 2*time.Second)
				return c.err
			})
			require.Equal(f, c.want, rep)
			require.Equal(f, []Report{c.want}, s.Status().Sweeps)
		}
	})
}

func TestStatusSaysWhyTheWitnessIsNotTicked(t *testing.T) {
	inBubble(t, func(f *fleet) {
		var line broken
		s := f.scripted(line.on)
		s.Poke()
		synctest.Wait()
		before := s.Status().Witness
		require.Empty(f, before.Error)

		mend := line.by("evalsha", io.ErrUnexpectedEOF)
		s.Poke()
		synctest.Wait()
		now := before
		now.Error = "guard: tick: unexpected EOF"
		require.Equal(f, now, s.Status().Witness, "what was known stays")
		pass(timing.Gap() + time.Second)
		now.Listening = 0
		require.Equal(f, now, s.Status().Witness, "nobody knows what happened meanwhile")

		mend()
		s.Poke()
		synctest.Wait()
		require.Equal(f, f.witness("gap", 0, 1), func() WitnessStatus {
			w := s.Status().Witness
			require.Positive(f, w.HeldFor)
			w.HeldFor = 0
			return w
		}())
	})
}

// Failed calls return the error of the server or the line, and name the operation.
func TestWhatAsksRedisReturnsItsErrorAndSaysWhatItAsked(t *testing.T) {
	batch := Batch{Owner: "dead", Body: guard.EvictEntries, Keys: []string{"k"}, Items: []string{"x"}}
	type row struct {
		command string // the command that fails
		says    string
		do      func(ctx context.Context, r *replica, p *Pass) error
	}
	rows(t, inBubble, map[string]row{
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
	}, func(f *fleet, c row) {
		defer f.beat("third")()
		f.live("other")
		var line broken
		s := f.scripted(line.on)
		for _, fault := range []error{io.ErrUnexpectedEOF, refusal("NOPERM no")} {
			f.live("other")
			pass(beatEvery/3 + time.Second) // makes earlier readings stale
			var err error
			rep := s.asked(Request{}, func(ctx context.Context, p *Pass) error {
				defer line.by(c.command, fault)()
				err = c.do(ctx, s.replica, p)
				return err
			})
			require.ErrorIs(f, err, fault)
			require.ErrorContains(f, err, c.says)
			require.Equal(f, Failed, rep.Outcome)
			require.Equal(f, err.Error(), rep.Error)
		}
	})
}

func TestAFollowerThatCannotAskWhoLeadsSaysSo(t *testing.T) {
	inBubble(t, func(f *fleet) {
		var line broken
		r := f.replica("r1", line.on)
		line.by("getrange", io.ErrUnexpectedEOF)
		_, err := r.Janitor.Sweep(f.Context(), Request{})
		for _, err := range []error{err, r.Resign(f.Context())} {
			var not *NotLeaderError
			require.ErrorAs(f, err, &not)
			require.Empty(f, not.Leader)
			require.ErrorIs(f, err, io.ErrUnexpectedEOF)
			require.ErrorContains(f, err, "janitor: not the leader; nobody leads at present")
			require.ErrorContains(f, err, "lease: read the holder")
		}
	})
}

// series returns a replica's series by name and labels, for histograms the sum.
func (r *replica) series() map[string]float64 {
	families, err := r.scraped.Gather()
	require.NoError(r.f, err)
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
	inBubble(t, func(f *fleet) {
		s := &scripted{}
		r := f.replica("r1", func(c *Config) {
			c.RedisShare = 0.5
			c.Sweeps = []Sweeper{s}
		})
		s.replica = r
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
		require.Equal(f, want, r.series())

		r.SweepsAre(s)
		f.live("other")
		f.record("other", doubt.Holds, 38*time.Second, beatTTL) // it is late
		stop := r.start()
		pass(5 * time.Second)
		n := 0.0
		for label := range maps.Clone(want) {
			if reason, ok := strings.CutPrefix(label, "spared_total "); ok {
				n++
				rep := s.asked(Request{}, func(_ context.Context, p *Pass) error {
					p.Skip(SkipReason(reason), int(n))
					p.Skip(SkipReason(reason), 0)
					return nil
				})
				require.Equal(f, map[SkipReason]int{SkipReason(reason): int(n)}, rep.Spared)
				want[label] = n
			}
			if reason, ok := strings.CutPrefix(label, "held_total "); ok {
				s.asked(Request{}, func(context.Context, *Pass) error { return &HeldError{Reason: reason} })
				want[label] = 1
			}
		}
		s.asked(Request{}, func(context.Context, *Pass) error { return errors.New("oh") })
		s.asked(Request{}, func(context.Context, *Pass) error { return ErrFenced })
		// A late heartbeat: sweeps rest longer than their share requires.
		f.must(f.PExpire(f.Context(), f.Heartbeat("other"), beatTTL-beatEvery-beatEvery/2))
		f.live("new")
		done := s.asked(Request{}, func(ctx context.Context, p *Pass) error {
			p.AddTotal(36)
			p.AddScanned(9)
			require.InDelta(f, 0.25, r.value("janitor_pass_progress_ratio", "sweep", "scripted"), 1e-9)
			_, err := p.Roster(ctx)
			for range 10 {
				_ = p.Call(ctx, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
			}
			return err
		})
		require.Equal(f, Done, done.Outcome)
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
			require.Positive(f, after[name], name)
			want[name] = after[name]
		}
		want["pass_duration_seconds scripted"] = done.Seconds
		require.Equal(f, want, after)

		f.must(f.Set(f.Context(), f.Lease(), "other/1", time.Second))
		pass(time.Minute)
		stop()
		r.counts(1, "janitor_lease_transitions_total", "event", "lost")
		r.counts(1, "janitor_lease_transitions_total", "event", "released")
		r.counts(2, "janitor_lease_transitions_total", "event", "acquired")
		after = r.series()
		require.Zero(f, after["leader"])
		require.Zero(f, after["redis_share"])
	})
}
