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
	Evicted   uint64 // entries evicted, ever: the total kept beside the log
	Instances int64
	ChecksOff []string // what this client cannot read: CheckRefused, restarted
}

// CheckRefused is the check whether Redis turns owners away, and the doubt that follows.
const CheckRefused = "refused"

// Tick listens, and adds this instance to the contenders. Every contender ticks, leading or not,
// held or paused. The script names a key that never exists, so that a Redis Cluster refuses it
// while the slot moves: it refuses beats with keys on both servers, and the living would fall
// silent without a hold.
func (g *Guard) Tick(ctx context.Context) (Witness, error) {
	return ticked(tickScript.Run(ctx, g.control, g.tickKeys(), g.gap, g.grace, g.leader, 0))
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
		return ticked(cmd)
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

func ticked(cmd *redis.Cmd) (Witness, error) {
	out, err := cmd.Slice()
	if err != nil {
		return Witness{}, fmt.Errorf("guard: tick: %w", err)
	}
	if len(out) != 9 {
		return Witness{}, fmt.Errorf("guard: tick: unexpected answer %v", out)
	}
	num := func(v any) int64 { n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64); return n }
	w := Witness{
		Now:       time.UnixMilli(num(out[0])),
		Since:     time.UnixMilli(num(out[1])),
		Reason:    fmt.Sprint(out[2]),
		Evicted:   uint64(num(out[4])),
		Instances: num(out[5]),
	}
	if held := num(out[3]); held > 0 {
		w.LastHold = time.UnixMilli(held)
	}
	if num(out[8]) == 0 {
		w.ChecksOff = append(w.ChecksOff, CheckRefused)
	}
	if num(out[7]) == 0 {
		w.ChecksOff = append(w.ChecksOff, "restarted")
	}
	w.Listening = w.Now.Sub(w.Since)
	w.HeldFor = max(0, time.Duration(num(out[6]))*time.Millisecond-w.Listening)
	return w, nil
}

// Recorded is the witness' record, for read-only use; zero means unknown.
type Recorded struct {
	Since    time.Time // no hold since then; all times are by the server's clock
	LastTick time.Time
	LastHold time.Time
	Reason   string
	Evicted  uint64
	// Gap and Grace are the latest tick's settings. Largest is the largest Grace seen lately:
	// deletes may begin when Redis has been observed for that long.
	Gap, Grace, Largest time.Duration
	Disagreed           time.Time // when two different settings were last seen
}

// ReadWitness reads the record and writes nothing. Fields that it cannot parse are zero.
func ReadWitness(ctx context.Context, client redis.UniversalClient, l Layout) (Recorded, error) {
	v, err := Values(ctx, client, l.Witness(), "since", "last", "hold", "reason", "evicted_total", "gap",
		"grace", "largest", "disagreed")
	if err != nil {
		return Recorded{}, fmt.Errorf("guard: read the witness: %w", err)
	}
	text := func(i int) string { s, _ := v[i].(string); return s }
	num := func(i int) int64 { n, _ := strconv.ParseInt(text(i), 10, 64); return max(0, n) }
	at := func(i int) (t time.Time) {
		if n := num(i); n > 0 {
			t = time.UnixMilli(n)
		}
		return t
	}
	ms := func(i int) time.Duration { return time.Duration(num(i)) * time.Millisecond }
	return Recorded{
		Since: at(0), LastTick: at(1), LastHold: at(2), Reason: text(3), Evicted: uint64(num(4)),
		Gap: ms(5), Grace: ms(6), Largest: ms(7), Disagreed: at(8),
	}, nil
}
