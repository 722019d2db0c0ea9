package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	burn   = 300 * time.Microsecond // of Redis' time, one call of the second client
	period = 500 * time.Microsecond // so that it takes 60 %
	// sampling is how often the shares are looked at.
	sampling = 200 * time.Millisecond
)

// burner burns Redis' time: a command of the second client's own name in the server's statistics.
const burner = `local x = 0 for i = 1, tonumber(ARGV[1]) do x = x + i end return x`

// closedLoop is what the sweep takes of Redis while somebody else comes, takes 60 % of it, and
// leaves again.
func closedLoop(r *rig) {
	n := r.loop
	r.section("Pace: the share of a sweep while another client comes and goes")
	r.say("An owner of %s entries is swept at the default share of 0.25. In the shaded time a second client takes 60 %% of Redis.", many(n))
	turns := r.calibrate()
	m := &mass{rig: r, n: n, ids: owners("dead", 1), total: n, beside: min(aside, n)}
	m.prepare(true)
	jan := r.replica("ingest-leader", func(_ *registry.Config, jc *janitor.Config) { jc.RedisShare = 0 }).leads()
	defer jan.stop()

	// How long it takes alone is about this; the client comes after a quarter and stays for a third.
	alone := time.Duration(float64(n)*1.3*4) * time.Microsecond
	come := time.Second + alone/4
	leave := come + alone/3
	var (
		sweep  = series{name: "the sweep"}
		other  = series{name: "second client"}
		rate   = series{name: "entries swept, 10 k/s"}
		wg     sync.WaitGroup
		actual span
	)
	r.resetStat()
	begun := time.Now()
	m.die(m.ids...)
	ctx, cancel := context.WithCancel(r.t.Context())
	wg.Go(func() {
		if wait.For(ctx, come) {
			actual.from = time.Since(begun).Seconds()
			r.burnUntil(ctx, leave-come, turns)
			actual.to = time.Since(begun).Seconds()
		}
	})
	var spent, burnt time.Duration
	evicted, at := uint64(0), begun
	for evicted < uint64(m.total) {
		wait.For(r.t.Context(), sampling)
		var nowSpent, nowBurnt time.Duration
		for _, one := range r.calls() {
			switch one.name {
			case "evalsha", "sscan":
				nowSpent += one.spent
			case "eval":
				nowBurnt += one.spent
			}
		}
		nowEvicted, now := jan.jan.Status().Evicted, time.Now()
		d := now.Sub(at).Seconds()
		x := now.Sub(begun).Seconds() - d/2
		for _, point := range []struct {
			s *series
			y float64
		}{
			{&sweep, 100 * (nowSpent - spent).Seconds() / d},
			{&other, 100 * (nowBurnt - burnt).Seconds() / d},
			{&rate, float64(nowEvicted-evicted) / d / 1e4},
		} {
			point.s.xs, point.s.ys = append(point.s.xs, x), append(point.s.ys, point.y)
		}
		spent, burnt, evicted, at = nowSpent, nowBurnt, nowEvicted, now
	}
	cancel()
	wg.Wait()
	m.swept()
	if actual.to == 0 {
		actual.to = time.Since(begun).Seconds()
	}
	actual.name = "second client takes 60 %"

	mean := func(s series, from, to float64) string {
		m := s.mean(from, to)
		if math.IsNaN(m) {
			return "–"
		}
		return fmt.Sprintf("%.1f", m)
	}
	end := time.Since(begun).Seconds()
	found := math.Min(1.2, actual.from) // by then the sweep is under way
	var rows [][]string
	for _, phase := range []struct {
		name     string
		from, to float64
	}{{"alone", found, actual.from}, {"beside the client", actual.from, actual.to}, {"alone again", actual.to, end - 0.3}} {
		rows = append(rows, []string{phase.name, mean(sweep, phase.from, phase.to), mean(other, phase.from, phase.to), mean(rate, phase.from, phase.to)})
	}
	usual := sweep.mean(found, actual.from)
	fell := sweep.first(actual.from, func(y float64) bool { return y < usual/2 }) - actual.from
	rose := sweep.first(actual.to, func(y float64) bool { return y > usual*3/4 }) - actual.to
	r.say("Its share was halved %.1f s after the client came, and back at three quarters %.1f s after it left, seen every %s.", fell, rose, sampling)
	r.promise("loop: seconds until the sweep gives way to a client that takes 60 %", "%.1f", fell, 2)
	r.table([]string{"", "sweep, % of Redis", "client, % of Redis", "10 k entries/s"}, rows)
	r.plot("loop", "Share of the sweep over time", lineChart("Share of Redis' time while "+many(n)+" entries are swept", "seconds since the death", "% of Redis' time",
		[]span{actual}, sweep, other, rate))
}

// mean of what was seen from an instant to another; NaN if that is nothing.
func (s series) mean(from, to float64) float64 {
	sum, k := 0.0, 0.0
	for i, x := range s.xs {
		if x >= from && x < to {
			sum, k = sum+s.ys[i], k+1
		}
	}
	return sum / k
}

// first is the first instant after another at which something was seen; infinite if it was not.
func (s series) first(after float64, seen func(y float64) bool) float64 {
	for i, x := range s.xs {
		if x > after && seen(s.ys[i]) {
			return x
		}
	}
	return math.Inf(1)
}

// calibrate finds how many turns the burner takes for one burn here.
func (r *rig) calibrate() int {
	const turns = 20_000
	c := r.measure(1, func() {
		for range 50 {
			require.NoError(r.t, r.rdb.Eval(r.t.Context(), burner, nil, turns).Err())
		}
	})
	each := c.spent("eval") / 50
	return int(float64(turns) * float64(burn) / float64(max(each, 1)))
}

// burnUntil takes its part of Redis for d.
func (r *rig) burnUntil(ctx context.Context, d time.Duration, turns int) {
	rdb := redis.NewClient(r.srv.Options())
	defer rdb.Close()
	end := time.Now().Add(d)
	for due := time.Now(); due.Before(end) && ctx.Err() == nil; due = due.Add(period) {
		now := time.Now()
		if late := now.Sub(due); late > 20*time.Millisecond {
			due = now // what it could not have it does not ask for later
		} else if late < 0 {
			wait.For(ctx, -late)
		}
		if err := rdb.Eval(ctx, burner, nil, turns).Err(); err != nil && ctx.Err() == nil {
			r.t.Error(err)
			return
		}
	}
}
