package janitor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/together"
)

const (
	// askedTogether is the number of heartbeats per pipeline.
	askedTogether = 16
	// PTTL returns these for a key that never expires, and one that does not exist.
	ttlNone, ttlAbsent = time.Duration(-1), time.Duration(-2)
	// maxInstanceID is longer than any host name or pod name.
	maxInstanceID = 256
)

// heartbeats returns how long each owner's heartbeat has left to live, 0 if Redis clearly answered
// that there is none. Those that cannot be read are missing. It makes at most
// Config.ExistsConcurrency requests at a time, and fails only if nothing could be read: that means
// Redis is down, not that one owner is odd.
func (j *Janitor) heartbeats(ctx context.Context, owners []string) (map[string]time.Duration, error) {
	asked := make([]string, 0, len(owners))
	for _, id := range owners {
		if plausible(id) {
			asked = append(asked, id)
		}
	}
	cmds := make([]*redis.DurationCmd, len(asked))
	workers := pool.New().WithErrors().WithMaxGoroutines(j.cfg.ExistsConcurrency)
	for from := 0; from < len(asked); from += askedTogether {
		to := min(from+askedTogether, len(asked))
		workers.Go(func() error { return j.askSome(ctx, asked[from:to], cmds[from:to]) })
	}
	err := workers.Wait()
	left := make(map[string]time.Duration, len(asked))
	for i, id := range asked {
		if d, readable := j.leftOf(cmds[i]); readable {
			left[id] = d
		}
	}
	if err != nil && len(left) == 0 {
		return nil, fmt.Errorf("janitor: judge owners: %w", err)
	}
	return left, nil
}

// askSome reads some in one round trip, with a command per owner: in one EXISTS of many keys, an
// error or a key on another node would look like an absence. PTTL costs the same as EXISTS.
func (j *Janitor) askSome(ctx context.Context, owners []string, cmds []*redis.DurationCmd) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pipe := j.cfg.Client.Pipeline()
	for i, id := range owners {
		cmds[i] = pipe.PTTL(ctx, j.layout.Heartbeat(id))
	}
	err := together.Exec(ctx, pipe)
	for _, cmd := range cmds {
		err = cmp.Or(err, cmd.Err())
	}
	return err
}

// leftOf counts a heartbeat that never expires as fresh.
func (j *Janitor) leftOf(pttl *redis.DurationCmd) (left time.Duration, readable bool) {
	switch left, err := pttl.Result(); {
	case err != nil:
		return 0, false
	case left == ttlAbsent:
		return 0, true
	case left == ttlNone:
		return j.timing.TTL, true
	default:
		return max(left, time.Millisecond), left >= 0
	}
}

// plausible: entries of other ids have an unknown writer, and are kept.
func plausible(id string) bool {
	return id != "" && len(id) <= maxInstanceID && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, unicode.IsControl)
}
