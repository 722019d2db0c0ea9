package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// ErrClientsDiffer ends Run if Client does not see the heartbeat that Control has just written: it
// uses another server or database, or reads from a replica. Nothing was registered. It takes ten
// clear answers, tenths of an interval apart, so that a failover does not cause it.
var ErrClientsDiffer = errors.New("registry: Client and Control are not at the same primary and database")

// apart is the longest that a beat waits for those of other partitions. Their timers fire together;
// registries with other intervals on the same client are not waited for any longer.
const apart = 300 * time.Millisecond

const differMost = 10

// Bits in a beat's reply of what this user may not do; see beat.lua.
const (
	noKeeping = 1 << iota
	noTelling
)

var (
	errNoKeeping = errors.New("NOPERM this user may not run SADD and SREM on the roster and the reverse index")
	errNoTelling = errors.New("NOPERM this user may not PUBLISH on the channels of heartbeats' names")
)

// beats draws the boot token, then beats every interval. It retries failures every interval/10, and
// then also calls retry.
func (r *Registry) beats(ctx context.Context) error {
	r.others = together.Join(r.cfg.Control, "beats")
	defer r.others.Leave()
	interval := r.cfg.HeartbeatInterval
	var due time.Time
	var turn int // tenths of the claims checked, or vouched for
	for {
		if now := time.Now(); !now.Before(due) || r.isMoving() {
			next := r.others.Turns(interval) - interval/20 // the tenth's timer may fire a little early
			err := r.beat(ctx)
			if err == nil {
				due = now.Add(next)
				r.mu.Lock()
				r.table.checkTenth(turn)
				r.mu.Unlock()
				turn++
			}
			r.endIfSuperseded(err)
		}
		r.retry()
		r.tellReconciled()
		if !wait.For(ctx, r.others.Turns(interval/10)) {
			return nil
		}
	}
}

// beat asserts life once. While memory is full it extends the existing heartbeat.
func (r *Registry) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(r.cfg.HeartbeatInterval/2, 2*time.Second))
	defer cancel()
	r.mu.Lock()
	booted, before := r.boot != "", r.table.batches
	moving := r.moving
	r.moving = r.moving && !booted
	alone := r.others == nil || r.failing["heartbeat"] != nil
	r.mu.Unlock()

	sent := time.Now()
	var got reply
	var word scanWord
	var err error
	var told bool // the witness: of moving
	if !booted {
		err = r.drawBoot(ctx)
	} else {
		grace := r.Timing().Grace().Milliseconds()
		if alone {
			got, err = r.own(ctx, r.cfg.Control, beatScript, grace, moving)
		} else {
			got, word, err = r.beatTogether(ctx, grace, moving)
		}
		if told = err == nil; told {
			noteRefused(r.keeping, got.count&noKeeping, errNoKeeping)
			noteRefused(r.telling, got.count&noTelling, errNoTelling)
		}
		if redis.IsOOMError(err) {
			if got, err = r.own(ctx, r.cfg.Control, extendScript); err == nil && got.count == 0 {
				err = errors.New("OOM and no heartbeat left to extend")
			}
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.moving = r.moving || moving && !told
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
	r.lastBeat, r.beatSent, r.refused = time.Now(), sent, ""
	r.recovered("heartbeat")
	if !r.table.searchUntil.IsZero() {
		wait.Nudge(r.scan)
	}
	if booted {
		if before%2 == 1 || before != r.table.batches {
			// A batch was being written, whose effect must not be compared.
			got.size, got.gone = r.table.indexed, false
		}
		r.read(got, r.lastBeat)
		r.readScanned(word, r.lastBeat)
	}
	return nil
}

// beatTogether beats in one pipeline with the partitions on the same Control client, and reads the
// newest full scan's findings. A failed beat is repeated alone: if no server is known for one
// partition's slot, the whole pipeline fails.
func (r *Registry) beatTogether(ctx context.Context, more ...any) (got reply, word scanWord, err error) {
	keys, args := r.owning(more...)
	r.mu.Lock()
	idle := r.table.count[standing] == 0 // there is nothing to vouch for
	r.mu.Unlock()
	var beat *redis.Cmd
	err = r.others.Do(ctx, min(r.cfg.HeartbeatInterval/100, apart), func(pipe redis.Pipeliner) {
		beat = beatScript.EvalSha(ctx, pipe, keys, args...)
		if !idle {
			word = r.askScanned(ctx, pipe)
		}
	})
	if redis.HasErrorPrefix(beat.Err(), "NOSCRIPT") {
		beat, err = beatScript.Eval(ctx, r.cfg.Control, keys, args...), nil
	}
	if err != nil && beat.Err() == nil {
		return reply{}, scanWord{}, err
	}
	got, err = r.owned(beat)
	return got, word, err
}

// noteFailed notes what the next beat or answer has to make good. Without an answer the script may
// have found the heartbeat missing and written it, which hides that from all later answers. If a
// Cluster refused a write because the keys' slot is moving, the next beat records it.
func (r *Registry) noteFailed(err error) {
	_, ask := redis.IsAskError(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moving = r.moving || ask || redis.IsTryAgainError(err)
	r.surprises.unheard = r.surprises.unheard || !together.Answered(err)
}

func (r *Registry) isMoving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moving
}

func noteRefused(s *streak.Streak, refused int, err error) {
	if refused == 0 {
		err = nil
	}
	s.Note(err)
}

func (r *Registry) drawBoot(ctx context.Context) error {
	keys := []string{r.keys.Heartbeat(r.id), r.keys.Roster(), r.keys.Witness()}
	token, err := bootScript.Run(ctx, r.cfg.Control, keys, r.id, r.random,
		r.cfg.HeartbeatTTL.Milliseconds(), r.Timing().Grace().Milliseconds()).Text()
	if err != nil {
		return err
	}
	if err := r.sameServer(ctx, token); err != nil {
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
	r.boot = token
	r.log.Info("instance lives", "boot", token)
	wait.Nudge(r.table.wake)
	wait.Nudge(r.scan)
	return nil
}

// sameServer returns nil if Client sees the heartbeat of this boot and may write on that server.
// Errors other than ErrClientsDiffer and ErrSuperseded prove nothing.
func (r *Registry) sameServer(ctx context.Context, boot string) error {
	key := r.keys.Heartbeat(r.id)
	answer, err := sameScript.Run(ctx, r.cfg.Client, []string{key}, boot).Text()
	what := "Client does not see the heartbeat that Control wrote"
	switch {
	case redis.IsReadOnlyError(err):
		what = "Client is at a replica"
	case err != nil || answer == "OK":
		return err
	case answer == "SUPERSEDED":
		return ErrSuperseded
	default:
		// If it was deleted or evicted in between, Control does not see it either.
		held, err := r.cfg.Control.Get(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if !strings.HasSuffix(held, "/"+boot) {
			return errors.New("registry: the heartbeat vanished right after it was written")
		}
	}
	err = fmt.Errorf("%w: %s", ErrClientsDiffer, what)
	if r.differ++; r.differ == differMost {
		r.end(err)
	}
	return err
}

func (r *Registry) retry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.After(r.table.lateUntil) && !r.scanFails {
		switch { // Redis agrees: the failures have been made good
		case r.table.pending() == 0:
			for _, op := range []string{"register", "release", "heal"} {
				r.recovered(op)
			}
		case !r.checkFails && r.table.healed(): // disputes may last
			r.recovered("heal")
		}
	}
	r.table.retry(now)
	r.tellOutlived(now)
	r.table.vouched.note(now, r.table.stand)
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
		_, err := r.own(ctx, r.cfg.Control, goodbyeScript, left)
		switch {
		case err == nil:
			r.log.Info("said goodbye", "left", left)
			return nil
		case errors.Is(err, ErrSuperseded):
			return err
		case ctx.Err() != nil:
			r.log.Warn("goodbye failed; letting the heartbeat expire",
				"ttl", r.cfg.HeartbeatTTL, "error", err)
			return nil
		}
		wait.For(ctx, r.retryDelay())
	}
}
