package commands

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/registry"
)

var (
	//go:embed state.lua
	stateLua string
	//go:embed claim.lua
	claimLua string
	//go:embed settle.lua
	settleLua string
	//go:embed overdue.lua
	overdueLua string
	//go:embed page.lua
	pageLua string
	//go:embed sweep.lua
	sweepLua string
)

var (
	claimScript    = redis.NewScript(stateLua + claimLua)
	settleScript   = redis.NewScript(stateLua + settleLua)
	overdueScript  = redis.NewScript(overdueLua)
	pageScript     = redis.NewScript(pageLua)
	sweepConstants = strings.NewReplacer("@group", group, "@most", strconv.Itoa(responsesMost))
	sweepBody      = guard.NewBody(stateLua + sweepConstants.Replace(sweepLua))
)

// Answers of the scripts beside a status: see claim.lua and settle.lua.
const (
	verdictSend      = "SEND"
	verdictExpired   = "EXPIRED"
	verdictMoved     = "MOVED"
	verdictDuplicate = "DUPLICATE"
	verdictGone      = "GONE"
	verdictTaken     = "TAKEN"
	verdictWaits     = "WAITS"
	verdictQueued    = "QUEUED"
)

func (r *Reader) queued(e entry) bool { return e.stream == r.queue }

func (r *Reader) lifeOf(e entry) string { return fmt.Sprintf("%d.%s", e.attempt, r.life) }

// take marks a command as sent, if it may be sent now. If the registry names another instance, a
// half-open socket may be left here. The script sees the entries of the first partition only, so
// the others are asked before.
func (r *Reader) take(
	ctx context.Context, e entry,
) (verdict string, left time.Duration, owner string, err error) {
	if r.queued(e) || r.layout.Divided() {
		at, err := r.cfg.Lookup(ctx, e.IMEI)
		if err != nil && !errors.Is(err, registry.ErrNotRegistered) {
			return "", 0, "", err
		}
		if at.Instance != r.cfg.Instance && (r.queued(e) || at.Instance != "") {
			return verdictMoved, 0, at.Instance, nil
		}
	}
	keys := []string{state(r.layout, e.ID), e.stream, r.layout.Registry()}
	out, err := claimScript.Run(ctx, r.cfg.Client, keys,
		e.at, r.lifeOf(e), r.cfg.Instance, e.IMEI, e.Expires.UnixMilli(), group, consumer).Slice()
	if err != nil {
		return "", 0, "", err
	}
	if len(out) == 3 {
		verdict, ok1 := out[0].(string)
		ms, ok2 := out[1].(int64)
		owner, ok3 := out[2].(string)
		if ok1 && ok2 && ok3 {
			return verdict, time.Duration(ms) * time.Millisecond, owner, nil
		}
	}
	return "", 0, "", fmt.Errorf("commands: unexpected answer %v", out)
}

func (r *Reader) add(ctx context.Context, e entry, status Status, text string) (string, error) {
	keys := []string{state(r.layout, e.ID), e.stream, Responses(r.layout)}
	ambiguous, long := 0, int64(0)
	if status == MaybeAnswered {
		status, ambiguous = Answered, 1
	}
	if r.queued(e) {
		long = r.overdue().Milliseconds()
	}
	var more []any
	switch {
	case status == verdictQueued:
		keys, text, more = append(keys, r.queue), e.Text, []any{cmp.Or(e.Codec, 12)}
	case status == Busy:
		more = r.ahead(e)
	}
	args := append([]any{
		e.at, r.lifeOf(e), r.cfg.Instance, e.IMEI, max(0, e.Expires.UnixMilli()), group,
		e.ID, string(status), text, responsesMost, ambiguous, long, waitingMost, deviceMost,
	}, more...)
	return settleScript.Run(ctx, r.cfg.Client, keys, args...).Text()
}

func (r *Reader) drop(ctx context.Context, e entry) (verdict string, err error) {
	deleted, err := r.cfg.Client.XDel(ctx, e.stream, e.at).Result()
	if err != nil || deleted == 0 {
		return verdictGone, err
	}
	return countUnusable, nil
}

// cutPage reads entries of any size, with these fields, cut to one byte more than most.
func cutPage(
	ctx context.Context, client redis.UniversalClient, stream, from string, n, most int, fields ...any,
) (page []redis.XMessage, err error) {
	args := append([]any{from, n, most}, fields...)
	out, err := pageScript.RunRO(ctx, client, []string{stream}, args...).Slice()
	for _, item := range out {
		texts, ok := item.([]any)
		if !ok || len(texts) == 0 {
			return nil, fmt.Errorf("commands: unexpected answer about %s", stream)
		}
		m := redis.XMessage{ID: fmt.Sprint(texts[0]), Values: map[string]any{}}
		for pair := range slices.Chunk(texts[1:], 2) {
			m.Values[fmt.Sprint(pair[0])] = pair[len(pair)-1]
		}
		page = append(page, m)
	}
	return page, err
}
