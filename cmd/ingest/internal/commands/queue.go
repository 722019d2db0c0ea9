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
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	// Each instance has a copy of the fleet's queue: some 12 MB at most.
	waitingMost = 10_000
	// lookTime is how often the queue is read on. Its start is read again every Config.Answer: other
	// instances remove entries.
	lookTime  = time.Second
	pagesMost = 2 * waitingMost / readMost
)

type waiting struct {
	devices map[string][]entry // by IMEI, in the queue's order
	count   int
	attempt int64         // the last one begun
	look    chan struct{} // holds a token: look at once

	// followQueue's own; the Reader's mu guards the rest.
	from    string // position for XRANGE
	began   time.Time
	skew    time.Duration   // how far Redis' clock is ahead of this one
	whole   bool            // read to its end once
	overdue map[string]bool // entries sent long ago
}

func newWaiting() waiting {
	return waiting{devices: make(map[string][]entry), look: make(chan struct{}, 1), from: "-"}
}

// Waiting returns the number of commands in the fleet's queue, as of the last look.
func (r *Reader) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting.count
}

// overdue is how long after a command was sent its instance should have reported an outcome.
func (r *Reader) overdue() time.Duration { return 2 * r.cfg.Answer }

func (e entry) same(other entry) bool { return e.stream == other.stream && e.at == other.at }

func (r *Reader) followQueue(ctx, work context.Context) {
	for ctx.Err() == nil {
		err := r.readQueue(ctx)
		if ctx.Err() != nil {
			return
		}
		r.looks.Note(err)
		r.serveQueue(ctx, work)
		select {
		case <-time.After(lookTime):
		case <-r.waiting.look:
		case <-ctx.Done():
		}
	}
}

func (r *Reader) readQueue(ctx context.Context) error {
	w := &r.waiting
	if time.Since(w.began) >= r.cfg.Answer {
		if err := r.beginQueue(ctx); err != nil {
			return err
		}
	}
	for range pagesMost {
		page, err := r.page(ctx, r.queue, w.from)
		if err != nil {
			return err
		}
		r.begin(ctx, r.queue, page, func(e entry) (Status, string) {
			w.from = "(" + e.at
			e.due = e.Expires.Add(-w.skew)
			if w.overdue[e.at] {
				e.due = time.Time{}
			}
			return r.admit(e)
		})
		if len(page) < readMost {
			w.whole = true
			return nil
		}
	}
	return nil
}

func (r *Reader) beginQueue(ctx context.Context) error {
	w := &r.waiting
	least := r.overdue()
	if !w.whole {
		least = 0 // an earlier life's are overdue
	}
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out, err := overdueScript.Run(call, r.cfg.Client, []string{r.queue}, group, least.Milliseconds()).StringSlice()
	if err != nil {
		return err
	}
	if len(out) == 0 {
		return fmt.Errorf("commands: unexpected answer about %s", r.queue)
	}
	ms, err := strconv.ParseInt(out[0], 10, 64)
	if err != nil {
		return fmt.Errorf("commands: unexpected answer about %s: %w", r.queue, err)
	}
	w.skew = time.Until(time.UnixMilli(ms))
	w.overdue = make(map[string]bool)
	for _, at := range out[1:] {
		w.overdue[at] = true
	}
	w.from, w.began = "-", time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	w.devices, w.count = make(map[string][]entry), 0
	return nil
}

// page reads commands, cut to the size of one.
func (r *Reader) page(ctx context.Context, stream, from string) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return cutPage(ctx, r.cfg.Client, stream, from, readMost, maxText,
		"id", "imei", "text", "codec", "expires", "queue")
}

// admit returns why an entry must not wait.
func (r *Reader) admit(e entry) (refused Status, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.waiting
	list := w.devices[e.IMEI]
	switch {
	case e.fault != nil:
		return Invalid, e.fault.Error()
	case len(list) >= deviceMost:
		return Busy, fmt.Sprintf("%d commands wait for the device already", len(list))
	case w.count >= waitingMost:
		return Busy, fmt.Sprintf("%d commands wait for their devices already", w.count)
	}
	w.devices[e.IMEI] = append(list, e)
	w.count++
	return "", ""
}

func (w *waiting) begin(e entry) entry {
	w.attempt++
	e.attempt = w.attempt
	return e
}

func (r *Reader) ahead(e entry) (entries []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.waiting.devices[e.IMEI] {
		entries = append(entries, other.at)
	}
	return entries
}

func (r *Reader) forget(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.waiting
	list := w.devices[e.IMEI]
	i := slices.IndexFunc(list, e.same)
	if i < 0 {
		return
	}
	w.count--
	if w.devices[e.IMEI] = slices.Delete(list, i, i+1); len(list) == 1 {
		delete(w.devices, e.IMEI)
		return
	}
	wait.Nudge(w.look)
}

func (r *Reader) serveQueue(ctx, work context.Context) {
	send, due := r.turn(time.Now())
	for _, e := range send {
		_, _ = r.enqueue(ctx, work, e) // without a place it waits on
	}
	settles := pool.New().WithMaxGoroutines(refusalsMost)
	for _, e := range due {
		settles.Go(func() { _ = r.tryConclude(ctx, e, Expired, "expired before its device connected") })
	}
	settles.Wait()
}

// turn returns each ready device's first command, and others that are due.
func (r *Reader) turn(now time.Time) (send, due []entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for imei, list := range r.waiting.devices {
		queue := r.queues[imei]
		if slices.ContainsFunc(queue, r.queued) {
			continue
		}
		i := 0
		for ; i < len(list) && !now.Before(list[i].due); i++ {
			if len(due) < readMost {
				due = append(due, r.waiting.begin(list[i]))
				list[i].due = now.Add(r.cfg.Answer) // if it gets no outcome now
			}
		}
		if i < len(list) && r.cfg.Devices.Ready(imei) {
			send = append(send, r.waiting.begin(list[i]))
		}
	}
	return send, due
}

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
