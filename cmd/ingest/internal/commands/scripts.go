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

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/registry"
)

//go:embed state.lua
var stateLua string

//go:embed take.lua
var takeLua string

//go:embed conclude.lua
var concludeLua string

//go:embed mark.lua
var markLua string

//go:embed waiting.lua
var waitingLua string

//go:embed overdue.lua
var overdueLua string

//go:embed claim.lua
var claimLua string

//go:embed settle.lua
var settleLua string

//go:embed leave.lua
var leaveLua string

//go:embed fetch.lua
var fetchLua string

//go:embed names.lua
var namesLua string

//go:embed sweep.lua
var sweepLua string

var (
	takeScript     = redis.NewScript(stateLua + takeLua)
	concludeScript = redis.NewScript(stateLua + concludeLua)
	overdueScript  = redis.NewScript(overdueLua)
	waitingScript  = redis.NewScript(waitingLua)
	claimScript    = redis.NewScript(stateLua + markLua + claimLua)
	settleScript   = redis.NewScript(stateLua + markLua + settleLua)
	leaveScript    = redis.NewScript(leaveLua)
	fetchScript    = redis.NewScript(fetchLua)
	namesScript    = redis.NewScript(namesLua)
	sweepConstants = strings.NewReplacer("@group", group, "@most", strconv.Itoa(responsesMost))
	sweepBody      = guard.NewBody(stateLua + sweepConstants.Replace(sweepLua))
)

// Answers of the scripts beside a status: see take.lua, claim.lua and settle.lua.
const (
	verdictSend      = "SEND"
	verdictExpired   = "EXPIRED"
	verdictMoved     = "MOVED"
	verdictLost      = "LOST"
	verdictDuplicate = "DUPLICATE"
	verdictGone      = "GONE"
	verdictTaken     = "TAKEN"
	verdictWaits     = "WAITS"
	verdictQueued    = "QUEUED"
)

func (r *Reader) lifeOf(e entry) string {
	if e.stream == r.queue {
		return fmt.Sprintf("%d.%s", e.attempt, r.life)
	}
	return r.life
}

// take marks a command as sent, if it may be sent now. If the registry names another instance, a
// half-open socket may be left here. The scripts see the entries of the first partition only, so
// the others are asked before.
func (r *Reader) take(
	ctx context.Context, e entry,
) (verdict string, left time.Duration, owner string, err error) {
	script, queued := takeScript, e.stream == r.queue
	if queued {
		script = claimScript
	}
	if queued || r.layout.Divided() {
		at, err := r.cfg.Lookup(ctx, e.IMEI)
		if err != nil && !errors.Is(err, registry.ErrNotRegistered) {
			return "", 0, "", err
		}
		if at.Instance != r.cfg.Instance && (queued || at.Instance != "") {
			return verdictMoved, 0, at.Instance, nil
		}
	}
	keys := []string{state(r.layout, e.ID), e.stream, r.layout.Registry()}
	out, err := script.Run(ctx, r.cfg.Client, keys,
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

// fetch reads the next entry, of any size, cut to the size of a command.
func (r *Reader) fetch(ctx context.Context, from string) ([]redis.XMessage, error) {
	keys := []string{r.stream}
	out, err := fetchScript.Run(ctx, r.cfg.Client, keys, group, consumer, from, maxText).StringSlice()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(out) == 0 {
		return nil, err
	}
	m := redis.XMessage{ID: out[0]}
	for pair := range slices.Chunk(out[1:], 2) {
		if m.Values == nil {
			m.Values = map[string]any{}
		}
		m.Values[pair[0]] = pair[1]
	}
	return []redis.XMessage{m}, nil
}

func (r *Reader) add(ctx context.Context, e entry, status Status, text string) (string, error) {
	keys := []string{state(r.layout, e.ID), e.stream, Responses(r.layout)}
	ambiguous := 0
	if status == MaybeAnswered {
		status, ambiguous = Answered, 1
	}
	script, args := concludeScript, []any{
		e.at, r.lifeOf(e), r.cfg.Instance, e.IMEI, max(0, e.Expires.UnixMilli()), group,
		e.ID, string(status), text, responsesMost, ambiguous,
	}
	switch {
	case e.stream == r.queue:
		script = settleScript
		args = append(args, r.overdue().Milliseconds(), waitingMost, deviceMost)
		if status == Busy {
			for _, at := range r.ahead(e) {
				args = append(args, at)
			}
		}
	case status == verdictQueued:
		keys, args[8] = append(keys, r.queue), e.Text
		args = append(args, cmp.Or(e.Codec, 12))
	}
	return script.Run(ctx, r.cfg.Client, keys, args...).Text()
}

func (r *Reader) drop(ctx context.Context, e entry) (verdict string, err error) {
	var deleted *redis.IntCmd
	_, err = r.cfg.Client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.XAck(ctx, e.stream, group, e.at)
		deleted = p.XDel(ctx, e.stream, e.at)
		return nil
	})
	if err != nil || deleted.Val() == 0 {
		return verdictGone, err
	}
	return countUnusable, nil
}
