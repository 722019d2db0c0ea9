package guard

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Witness is the result of a tick: how long Redis has been observed without a hold.
type Witness struct {
	Now       time.Time // by the server's clock
	Since     time.Time // no hold since then
	Listening time.Duration
	HeldFor   time.Duration // until deletes may begin; 0: they may
	Reason    string
	LastHold  time.Time
	// EvictingFor is for how long a batch without an owner is held, since Redis evicted keys.
	EvictingFor time.Duration
	Evicted     uint64 // entries evicted, ever: the total kept beside the log
	Instances   int64
	// ChecksOff are the checks for which this client cannot read what they need: CheckRefused,
	// redis_evicting, restarted.
	ChecksOff []string
}

// CheckRefused is the check whether Redis turns owners away, and the doubt that follows.
const CheckRefused = "refused"

// Tick listens, and adds this instance to the contenders. Every contender ticks, leading or not,
// held or paused. The script names a key that never exists, so that a Redis Cluster refuses it
// while the slot moves: it refuses beats with keys on both servers, and the living would fall
// silent without a hold.
func (g *Guard) Tick(ctx context.Context) (Witness, error) {
	return g.ticked(tickScript.Run(ctx, g.control, g.tickKeys(), g.gap, g.grace, g.leader, 0))
}

// TickIn adds a tick to a pipeline of the control client. The returned function, called after the
// pipeline has run, returns what Tick does. If somebody with the same settings ticked less than
// unless ago, the tick only reads the record: no INFO, no write.
func (g *Guard) TickIn(
	ctx context.Context, pipe redis.Pipeliner, unless time.Duration,
) func() (Witness, error) {
	cmd := tickScript.EvalSha(ctx, pipe, g.tickKeys(), g.gap, g.grace, g.leader, unless.Milliseconds())
	return func() (Witness, error) {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			return g.Tick(ctx)
		}
		return g.ticked(cmd)
	}
}

func (g *Guard) tickKeys() []string {
	l := g.layout
	aside := l.WitnessAside(uint64(time.Now().UnixMicro()))
	return []string{l.Witness(), l.Roster(), l.Never(), l.Contenders(), aside}
}

// Withdraw removes this instance from the contenders.
func (g *Guard) Withdraw(ctx context.Context) error {
	return g.control.SRem(ctx, g.layout.Contenders(), g.leader).Err()
}

func (g *Guard) ticked(cmd *redis.Cmd) (Witness, error) {
	out, err := cmd.Slice()
	if err != nil {
		return Witness{}, fmt.Errorf("guard: tick: %w", err)
	}
	if len(out) != 8 {
		return Witness{}, fmt.Errorf("guard: tick: unexpected answer %v", out)
	}
	grace := time.Duration(g.grace) * time.Millisecond
	w := Witness{
		Now: at(out[0]), Since: at(out[1]), Reason: fmt.Sprint(out[2]), LastHold: at(out[3]),
		Evicted: uint64(number(out[4])), Instances: number(out[5]),
	}
	w.Listening = w.Now.Sub(w.Since)
	w.HeldFor = max(0, grace-w.Listening)
	if evicted := at(out[6]); !evicted.IsZero() {
		w.EvictingFor = max(0, grace-w.Now.Sub(evicted))
	}
	off, _ := out[7].([]any)
	for _, check := range off {
		w.ChecksOff = append(w.ChecksOff, fmt.Sprint(check))
	}
	return w, nil
}

// number and at read what the witness has; 0, or a zero time, if that is none.
func number(v any) int64 {
	n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	return max(0, n)
}

func at(v any) (t time.Time) {
	if ms := number(v); ms > 0 {
		t = time.UnixMilli(ms)
	}
	return t
}

// Recorded is the witness' record, for read-only use; zero means unknown.
type Recorded struct {
	Since    time.Time // no hold since then; all times are by the server's clock
	LastTick time.Time
	LastHold time.Time
	Reason   string
	Evicted  uint64
	// Gap and Grace are the latest tick's settings. Grace is 0 if an owner's beat disagreed since.
	Gap, Grace time.Duration
}

// ReadWitness reads the record and writes nothing. Fields that it cannot parse are zero.
func ReadWitness(ctx context.Context, client redis.UniversalClient, l Layout) (Recorded, error) {
	v, err := Values(ctx, client, l.Witness(), "since", "last", "hold", "reason", "evicted_total", "gap", "grace")
	if err != nil {
		return Recorded{}, fmt.Errorf("guard: read the witness: %w", err)
	}
	reason, _ := v[3].(string)
	ms := func(v any) time.Duration { return time.Duration(number(v)) * time.Millisecond }
	return Recorded{
		Since: at(v[0]), LastTick: at(v[1]), LastHold: at(v[2]), Reason: reason, Evicted: uint64(number(v[4])),
		Gap: ms(v[5]), Grace: ms(v[6]),
	}, nil
}
