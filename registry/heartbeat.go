package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/subscribe"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// apart is the longest that a beat waits for those of other partitions. Their timers fire
	// together; registries with other intervals on the same client are not waited for any longer.
	apart = 300 * time.Millisecond
	// formerMost is how often in a row Client may look as if at a former primary before Control does.
	formerMost = 3
	endOfTime  = 999_999_999_999_999 // ms
	// deafAfter is how long a beat's message to its own owner may take.
	deafAfter = time.Second
)

// Bits in a beat's reply of what this user may not do; see beat.lua.
const (
	noKeeping = 1 << iota
	noTelling
)

var errDeaf = errors.New("its own messages do not arrive; subscribing anew")

// missing returns what this user may not do, nil if nothing.
func missing(count int) error {
	var keeping, telling error
	if count&noKeeping != 0 {
		keeping = errors.New("NOPERM SADD, SREM, HGET and HSET on the roster, the reverse index and the records")
	}
	if count&noTelling != 0 {
		telling = errors.New("NOPERM PUBLISH on the channels of heartbeats' names")
	}
	return errors.Join(keeping, telling)
}

// beats draws the boot token, then beats every interval. It retries failures every interval/10, and
// then also calls retry. Each beat checks a tenth of the claims.
func (r *Registry) beats(ctx context.Context) error {
	r.others = together.Join(r.cfg.Control, "beats")
	defer r.others.Leave()
	interval := r.cfg.HeartbeatInterval
	var due time.Time
	var turn int
	for {
		if now := time.Now(); !now.Before(due) {
			next := r.others.Turns(interval) - interval/20 // the tenth's timer may fire a little early
			err := r.beat(ctx)
			if err == nil {
				due = now.Add(next)
				r.mu.Lock()
				r.table.checkShard(turn % shards)
				r.mu.Unlock()
				turn++
			}
			r.endIfReplaced(err)
		}
		r.retry()
		r.renewIfDeaf()
		r.tellReconciled()
		if !wait.For(ctx, r.others.Turns(interval/10)) {
			return nil
		}
	}
}

// beat asserts life once.
func (r *Registry) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(r.cfg.HeartbeatInterval/2, 2*time.Second))
	defer cancel()
	sent := time.Now()
	r.mu.Lock()
	booted, before := r.boot != "", r.table.batches
	stands := r.table.count[standing] > 0 && before%2 == 0
	alone := r.others == nil || r.failing["heartbeat"] != nil
	stayed := r.formers >= formerMost
	if stayed {
		r.formers = 0
	}
	r.mu.Unlock()

	var got reply
	var err error
	switch {
	case !booted:
		err = r.drawBoot(ctx)
	default:
		if stayed {
			r.redial(ctx)
		}
		args := []any{r.Timing().Grace().Milliseconds(), stands}
		if got, err = r.sendBeat(ctx, alone, args...); redis.IsOOMError(err) {
			got, err = r.own(ctx, fullScript, args...)
		}
		if err == nil {
			r.rights.Note(missing(got.count))
		}
	}

	if err != nil {
		// Redis answers a long command without a login by closing the connection, a short one by NOAUTH.
		for range 2 { // the first may meet that connection
			if why := r.cfg.Control.Ping(ctx).Err(); refused(why) {
				err = why
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if refused(err) {
			r.refused = err.Error()
		}
		r.fail("heartbeat", err, 1)
		if r.boot == "" { // otherwise the former life is being handed back
			closeOnce(r.started)
		}
		return err
	}
	r.lastBeat, r.refused = time.Now(), ""
	r.recovered("heartbeat")
	if !r.table.searchUntil.IsZero() {
		wait.Nudge(r.scan)
	}
	if booted {
		if before%2 == 1 || before != r.table.batches {
			got.size = r.table.indexed // a batch was being written, whose effect must not be compared
		}
		if got.found < r.newest {
			got.found = 0 // the server was set back
		}
		r.newest = got.last
		if got.count&noTelling == 0 && !r.spoke.After(r.heard) {
			r.spoke = sent
		}
		r.read(got, r.lastBeat)
	}
	return nil
}

// sendBeat beats in one pipeline with the partitions on the same Control client, or alone: if no
// server is known for one partition's slot, the whole pipeline fails.
func (r *Registry) sendBeat(ctx context.Context, alone bool, more ...any) (reply, error) {
	if alone {
		return r.own(ctx, beatScript, more...)
	}
	keys, args := r.owning(0, more...)
	sent := time.Now()
	var beat *redis.Cmd
	err := r.others.Do(ctx, min(r.cfg.HeartbeatInterval/100, apart), func(pipe redis.Pipeliner) {
		beat = beatScript.EvalSha(ctx, pipe, keys, args...)
	})
	if redis.HasErrorPrefix(beat.Err(), "NOSCRIPT") {
		beat, err = beatScript.Eval(ctx, r.cfg.Control, keys, args...), nil
	}
	if err != nil && beat.Err() == nil {
		return reply{}, err
	}
	return r.owned(sent, beat)
}

// redial ends Control's connections: Client, which was dialed anew, still is where the newest beat
// is missing, so perhaps Control is at the former primary. No server has a beat of the end of time,
// and a connection that answers READONLY is closed.
func (r *Registry) redial(ctx context.Context) {
	r.log.Warn("Client does not see the newest heartbeat, even on new connections; dialing anew for Control")
	keys, args := r.owning(endOfTime)
	for range r.cfg.Control.PoolStats().TotalConns {
		_ = hereScript.Run(ctx, r.cfg.Control, keys, args...)
	}
}

// former notes whether Client's answer is that of a former primary. The caller holds mu.
func (r *Registry) former(err error) {
	switch {
	case isFormer(err):
		r.formers++
	case err == nil:
		r.formers = 0
	}
}

func isFormer(err error) bool { return redis.HasErrorPrefix(err, "READONLY former primary") }

// Newest returns when the newest heartbeat of this process was written, in ms by the server's
// clock, 0 if none is known. A server that has an older one is a former primary.
func (r *Registry) Newest() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

func (r *Registry) drawBoot(ctx context.Context) error {
	keys, args := r.owning(0, r.random, r.Timing().Grace().Milliseconds())
	out, err := bootScript.Run(ctx, r.cfg.Control, keys, args...).Slice()
	if err != nil {
		return err
	}
	token, newest, err := parseBoot(out)
	if err != nil {
		return err
	}
	keys, args = r.owning(0)
	args[1] = token
	if _, err := r.owned(time.Now(), hereScript.Run(ctx, r.cfg.Client, keys, args...)); err != nil {
		return err
	}
	if !r.cfg.Unique {
		// A former life may have contended, and this one may not. If it does, its ticks add it
		// again.
		if err := r.cfg.Control.SRem(ctx, r.keys.Contenders(), r.id).Err(); err != nil && !together.Answered(err) {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boot, r.newest = token, newest
	r.log.Info("instance lives", "boot", token)
	wait.Nudge(r.table.wake)
	wait.Nudge(r.scan)
	return nil
}

func parseBoot(out []any) (token string, newest int64, err error) {
	if len(out) == 2 {
		token, ok1 := out[0].(string)
		newest, ok2 := out[1].(int64)
		if ok1 && ok2 {
			return token, newest, nil
		}
	}
	return "", 0, fmt.Errorf("registry: unexpected answer %v", out)
}

// renewIfDeaf subscribes anew if the message of a beat to this owner itself did not arrive: other
// owners' do not arrive either.
func (r *Registry) renewIfDeaf() {
	r.mu.Lock()
	was := r.deaf // if this process was stopped, the message may wait here
	r.deaf = r.spoke.After(r.heard) && time.Since(r.spoke) > deafAfter
	deaf := was && r.deaf
	if deaf {
		r.spoke = r.heard // until the next beat
		r.fail("listen", errDeaf, 1)
	}
	r.mu.Unlock()
	if deaf {
		subscribe.Renew(r.cfg.Control)
	}
}

func (r *Registry) retry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.After(r.table.lateUntil) { // where Redis agrees, failures have been made good
		if r.table.pending() == 0 {
			r.recovered("register")
			r.recovered("release")
		}
		if r.table.count[unconfirmed] == 0 { // disputes may last
			r.recovered("heal")
		}
	}
	r.table.retry(now)
	r.reconcileAll(now)
}

// After a few failed tries goodbye lets the heartbeat expire.
func (r *Registry) goodbye(ctx context.Context) error {
	r.mu.Lock()
	booted, left := r.boot != "", r.table.held()+r.table.count[releasing]
	if !r.table.searchUntil.IsZero() {
		left++
	}
	r.mu.Unlock()
	if !booted {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(r.cfg.HeartbeatInterval, 3*time.Second))
	defer cancel()
	for {
		_, err := r.own(ctx, goodbyeScript, left)
		switch {
		case err == nil:
			r.log.Info("said goodbye", "left", left)
			return nil
		case errors.Is(err, ErrReplaced):
			return err
		case ctx.Err() != nil:
			r.log.Warn("goodbye failed; letting the heartbeat expire",
				"ttl", r.cfg.HeartbeatTTL, "error", err)
			return nil
		}
		wait.For(ctx, r.retryDelay())
	}
}
