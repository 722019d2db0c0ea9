package janitor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/together"
)

// Liveness is the verdict on an owner.
type Liveness uint8

// An owner is silent only if Redis clearly answered that its heartbeat does not exist.
const (
	Unreadable Liveness = iota // an error, or an impossible id: keep
	Alive
	Dead
	Doubted // silent, but that proves nothing yet: keep
)

const (
	// existsSlice is the number of heartbeats per pipeline.
	existsSlice = 16
	// PTTL returns these for a key that never expires, and one that does not exist.
	ttlNone, ttlAbsent = time.Duration(-1), time.Duration(-2)
	// maxInstanceID is longer than any host name or pod name.
	maxInstanceID = 256
)

// heartbeats asks for each owner's heartbeat, at most Config.ExistsConcurrency pipelines at a time,
// and also returns the remaining life of each that expires. It fails only if nothing could be read:
// that means Redis is down, not that one owner is odd.
func (j *Janitor) heartbeats(ctx context.Context, owners []string) (
	answer map[string]Liveness, left map[string]time.Duration, err error,
) {
	answer, left = make(map[string]Liveness, len(owners)), make(map[string]time.Duration, len(owners))
	asked := make([]string, 0, len(owners))
	for _, id := range owners {
		answer[id] = Unreadable
		if plausible(id) {
			asked = append(asked, id)
		}
	}
	found := make([]heartbeat, len(asked))
	workers := pool.New().WithErrors().WithMaxGoroutines(j.cfg.ExistsConcurrency)
	for from := 0; from < len(asked); from += existsSlice {
		to := min(from+existsSlice, len(asked))
		workers.Go(func() error { return j.exists(ctx, asked[from:to], found[from:to]) })
	}
	err = workers.Wait()
	readable := func(h heartbeat) bool { return h.Liveness != Unreadable }
	if err != nil && !slices.ContainsFunc(found, readable) {
		return nil, nil, fmt.Errorf("janitor: judge owners: %w", err)
	}
	for i, id := range asked {
		answer[id] = found[i].Liveness
		if found[i].left > 0 {
			left[id] = found[i].left
		}
	}
	return answer, left, nil
}

type heartbeat struct {
	Liveness
	left time.Duration // remaining life; 0: it never expires, or does not exist
}

// exists reads one slice in one round trip, with a command per owner: in one EXISTS of many keys,
// an error or a key on another node would look like an absence. PTTL costs the same as EXISTS and
// also returns the remaining life.
func (j *Janitor) exists(ctx context.Context, owners []string, found []heartbeat) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pipe := j.cfg.Client.Pipeline()
	cmds := make([]*redis.DurationCmd, len(owners))
	for i, id := range owners {
		cmds[i] = pipe.PTTL(ctx, j.layout.Heartbeat(id))
	}
	if err := together.Exec(ctx, pipe); err != nil {
		return err
	}
	var err error
	for i, cmd := range cmds {
		found[i] = heartbeatOf(cmd)
		err = cmp.Or(err, cmd.Err())
	}
	return err
}

func heartbeatOf(pttl *redis.DurationCmd) heartbeat {
	switch left, err := pttl.Result(); {
	case err != nil:
	case left >= 0: // left 0 would mean that it never expires
		return heartbeat{Alive, max(left, time.Millisecond)}
	case left == ttlNone:
		return heartbeat{Liveness: Alive}
	case left == ttlAbsent:
		return heartbeat{Liveness: Dead}
	}
	return heartbeat{}
}

// plausible: entries of other ids have an unknown writer, and are kept.
func plausible(id string) bool {
	return id != "" && len(id) <= maxInstanceID && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, unicode.IsControl)
}
