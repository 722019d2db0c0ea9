package janitor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
)

// Liveness is what could be learnt about an owner.
type Liveness uint8

// An owner is dead only if Redis clearly said that its heartbeat does not exist.
const (
	Unreadable Liveness = iota // an error, or an id that no instance can have: keep
	Alive
	Dead
)

const (
	// existsSlice is how many heartbeats one pipeline asks for: about 0.3 ms of Redis' time.
	existsSlice = 500
	// PTTL's answers that are no time: a key that never expires, and one that is not there.
	ttlNone, ttlAbsent = time.Duration(-1), time.Duration(-2)
	// maxInstanceID: no host name or pod name is longer.
	maxInstanceID = 256
	// maxJudged bounds a pass' memory of judged owners; beyond it, which takes a registry full of
	// rubbish, owners are asked for again.
	maxJudged = 100_000
)

// heartbeats asks for the owners' heartbeats, in slices, a bounded number of them at once. Its
// answer names every owner; left is how long each heartbeat that expires has yet. It fails only if
// nothing at all could be read: then Redis is away, and not an owner odd.
func (j *Janitor) heartbeats(ctx context.Context, owners []string) (answer map[string]Liveness, left map[string]time.Duration, err error) {
	answer, left = make(map[string]Liveness, len(owners)), make(map[string]time.Duration, len(owners))
	asked := make([]string, 0, len(owners))
	for _, id := range owners {
		answer[id] = Unreadable
		if plausible(id) {
			asked = append(asked, id)
		}
	}

	var (
		mu   sync.Mutex
		errs []error
		read int
	)
	workers := pool.New().WithMaxGoroutines(j.cfg.ExistsConcurrency)
	for len(asked) > 0 {
		slice := asked[:min(existsSlice, len(asked))]
		asked = asked[len(slice):]
		workers.Go(func() {
			found, err := j.exists(ctx, slice)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			for i, beat := range found {
				answer[slice[i]] = beat.Liveness
				if beat.left > 0 {
					left[slice[i]] = beat.left
				}
				if beat.Liveness != Unreadable {
					read++
				}
			}
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil && read == 0 {
		return nil, nil, fmt.Errorf("janitor: judge owners: %w", err)
	}
	if _, asked := answer[j.instance]; asked {
		// This replica lives, whatever Redis says; should its heartbeat be absent, the guard
		// takes that as a hold.
		answer[j.instance] = Alive
	}
	return answer, left, nil
}

// heartbeat is what one owner's heartbeat says.
type heartbeat struct {
	Liveness
	left time.Duration // of its life; 0: it never expires, or is not there
}

// exists asks for one slice in one round trip. Each owner has a command of its own: in one EXISTS
// of many keys an error, or a key on another node, would be read as somebody's absence. PTTL says
// as much as EXISTS at the same cost, and for how long yet.
func (j *Janitor) exists(ctx context.Context, owners []string) ([]heartbeat, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pipe := j.cfg.Client.Pipeline()
	cmds := make([]*redis.DurationCmd, len(owners))
	for i, id := range owners {
		cmds[i] = pipe.PTTL(ctx, j.layout.Heartbeat(id))
	}
	_, err := pipe.Exec(ctx)
	found := make([]heartbeat, len(owners))
	failed := false
	for i, cmd := range cmds {
		switch left, err := cmd.Result(); {
		case err != nil:
			failed = true
		case left >= 0:
			found[i] = heartbeat{Alive, left}
		case left == ttlNone:
			found[i] = heartbeat{Liveness: Alive}
		case left == ttlAbsent:
			found[i] = heartbeat{Liveness: Dead}
		}
	}
	if err != nil && !failed {
		// The connection was refused (a wrong password): only the pipeline knows, and each command
		// looks as if it had been answered.
		clear(found)
	}
	return found, err
}

// plausible tells whether a string can be an instance id. An entry that names something else was
// written by who knows whom, and is kept.
func plausible(id string) bool {
	if id == "" || len(id) > maxInstanceID || !utf8.ValidString(id) {
		return false
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}
