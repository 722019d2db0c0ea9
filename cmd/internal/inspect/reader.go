package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/keyless"
)

// Reader reads one fleet. It is safe for concurrent use.
type Reader struct {
	client redis.UniversalClient
	keys   guard.Layout

	divided atomic.Pointer[[]*Reader] // one per partition
	foreign atomic.Int64              // the number that somebody overwrote theirs with; 0: none
	number  int
	single  bool    // of one partition
	history history // of its eviction log
}

// New returns a Reader. The caller keeps the client.
func New(client redis.UniversalClient, layout guard.Layout) *Reader {
	return &Reader{client: client, keys: layout}
}

// at is a client of the server with the fleet's keys, for commands without a key.
func (r *Reader) at(ctx context.Context) (redis.UniversalClient, error) {
	at, err := keyless.At(ctx, r.client, r.keys.Witness())
	if err != nil {
		return nil, fmt.Errorf("inspect: server of the keys: %w", err)
	}
	return at, nil
}

func (r *Reader) now(ctx context.Context) (time.Time, error) {
	at, err := r.at(ctx)
	if err != nil {
		return time.Time{}, err
	}
	now, err := at.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("inspect: time of the server: %w", err)
	}
	return now, nil
}

// exec leaves answers about absent or mistyped keys empty.
func exec(ctx context.Context, p redis.Pipeliner, what string) error {
	cmds, err := p.Exec(ctx)
	for _, c := range cmds {
		if unreadable(c.Err()) && !(Refused(c.Err()) && unreadable(err)) { // what is worse than a missing right
			err = c.Err()
		}
	}
	if unreadable(err) {
		return fmt.Errorf("inspect: read %s: %w", what, err)
	}
	return nil
}

// beating is what an instance last wrote.
type beating struct {
	Alive     bool
	Beat      time.Time     // zero: not in the value
	Boot      time.Time     // this life's begin; zero: not in the value
	ExpiresIn time.Duration // 0: never

	index    int64 // of its devices
	badIndex bool  // of another type
}

func (h beating) ttl(now time.Time) time.Duration {
	if h.Beat.IsZero() || h.ExpiresIn == 0 {
		return 0
	}
	return (now.Sub(h.Beat) + h.ExpiresIn).Round(100 * time.Millisecond)
}

func (r *Reader) heartbeats(ctx context.Context, ids []string) (map[string]beating, error) {
	all := make(map[string]beating, len(ids))
	for page := range slices.Chunk(ids, pageSize) {
		p := r.client.Pipeline()
		values, left, sizes := make([]*redis.StringCmd, len(page)), make([]*redis.DurationCmd, len(page)),
			make([]*redis.IntCmd, len(page))
		for i, id := range page {
			key := r.keys.Heartbeat(id)
			values[i], left[i] = beginning(ctx, p, key, longestBeat), p.PTTL(ctx, key)
			sizes[i] = p.SCard(ctx, r.keys.Devices(id))
		}
		if err := exec(ctx, p, "heartbeats and indexes"); err != nil {
			return nil, err
		}
		for i, id := range page {
			h := beating{}
			if left[i].Val() >= -1 {
				h = heartbeat(values[i].Val(), left[i].Val())
			}
			h.index, h.badIndex = sizes[i].Val(), wrongType(sizes[i].Err())
			all[id] = h
		}
	}
	return all, nil
}

const longestBeat = 128

func beginning(
	ctx context.Context, p redis.Pipeliner, key string, longest int64,
) *redis.StringCmd {
	return p.GetRange(ctx, key, 0, longest-1)
}

// heartbeat parses `<unix ms>/<boot token>`. An older writer's value may be anything.
func heartbeat(value string, left time.Duration) beating {
	h := beating{Alive: true, ExpiresIn: max(0, left)}
	ms, token, ok := strings.Cut(value, "/")
	if n, err := strconv.ParseInt(ms, 10, 64); ok && err == nil {
		h.Beat = time.UnixMilli(n)
	}
	h.Boot = bootTime(token)
	return h
}

func bootTime(token string) (t time.Time) {
	if len(token) != 26 {
		return t
	}
	if us, err := strconv.ParseInt(token[:16], 10, 64); err == nil {
		t = time.UnixMicro(us)
	}
	return t
}

const pageSize = 1000

// mostRoster is exceeded only if somebody else writes the roster.
const mostRoster = 2_000

// mostNames bounds the bytes of ids. A replica's own has a few dozen.
const mostNames = 256 << 10

func (r *Reader) roster(ctx context.Context) (ids []string, cut int64, err error) {
	met, bytes := map[string]bool{}, 0 // a scan may repeat ids
	for page, err := range guard.Members(ctx, r.client, r.keys.Roster(), guard.Paging{}) {
		for _, id := range page.Items {
			if bytes += len(id); bytes <= mostNames {
				met[id] = true
			}
		}
		full := bytes > mostNames || len(met) >= mostRoster && page.Next != 0
		if full && err == nil {
			cut, err = r.client.SCard(ctx, r.keys.Roster()).Result()
			cut = max(1, cut-int64(len(met)))
		}
		if unreadable(err) {
			return nil, 0, fmt.Errorf("inspect: read the roster: %w", err)
		}
		if full {
			break
		}
	}
	return slices.Sorted(maps.Keys(met)), cut, nil
}

func is(c *redis.BoolSliceCmd) bool { return len(c.Val()) == 1 && c.Val()[0] }

func unreadable(err error) bool { return err != nil && !errors.Is(err, redis.Nil) && !wrongType(err) }
