package registry

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// A sign is a reason to believe that Redis may have lost entries; "": there is none.
type sign string

const (
	gone     sign = "record_absent"
	silent   sign = "was_silent" // for as long as a heartbeat lasts
	recorded sign = "loss_recorded"
	unheard  sign = "answer_lost"
)

type surprises struct {
	lost    string // when entries may last have been lost; "": nobody has recorded it
	read    bool   // an answer, and so lost
	waiting sign   // not yet acted on
	unheard bool   // an answer was lost, and with it perhaps the only sign
	checked time.Time
}

// note looks for the signs of a loss: the own record is missing or so old that others could take
// this owner for dead, or it may have been before an answer was lost; somebody recorded one.
func (s *surprises) note(got reply, ttl int64) {
	var new sign
	switch {
	case got.found == 0:
		new = gone
	case got.last-got.found >= ttl:
		new = silent
	case s.read && got.lost != "" && got.lost != s.lost:
		new = recorded
	case s.unheard:
		new = unheard
	}
	s.waiting = cmp.Or(s.waiting, new)
	s.read, s.lost, s.unheard = true, cmp.Or(got.lost, s.lost), false
}

// due returns the sign for which to check everything now, at most once an interval.
func (s *surprises) due(now time.Time, interval time.Duration) sign {
	due := s.waiting
	if due == "" || now.Sub(s.checked) < interval {
		return ""
	}
	s.waiting, s.checked = "", now
	return due
}

// read takes a reply: a surprise has everything checked, and an index of unexpected size is
// compared with the claims. The caller holds mu.
func (r *Registry) read(got reply, now time.Time) {
	r.surprises.note(got, r.cfg.HeartbeatTTL.Milliseconds())
	r.reconcileAll(now)
	if r.ready && !r.cfg.NoReverseIndex && r.table.indexDiffers(got.size, now) {
		wait.Nudge(r.scan)
	}
}

func (r *Registry) reconcileAll(now time.Time) {
	why := r.surprises.due(now, r.cfg.HeartbeatInterval)
	if why == "" {
		return
	}
	level := slog.LevelInfo
	if why == gone || why == silent {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "Redis may have lost entries; reconciling everything",
		"why", why, "devices", r.table.held())
	r.table.suspect(why == gone)
	r.restoring.owed = true
	wait.Nudge(r.scan)
}

// restoring decides when to call Config.OnReconciled.
type restoring struct {
	owed   bool
	called time.Time
}

// The writer calls tellReconciled after each batch, since on a busy replica some write is always
// under way.
func (r *Registry) tellReconciled() {
	now := time.Now()
	s := &r.restoring
	r.mu.Lock()
	due := s.owed && r.boot != "" && r.failing["heartbeat"] == nil &&
		r.table.restored() && now.Sub(s.called) >= r.cfg.HeartbeatInterval
	if due {
		*s = restoring{called: now}
	}
	r.mu.Unlock()
	if due && r.cfg.OnReconciled != nil {
		r.cfg.OnReconciled()
	}
}

// reconcile compares the index with the claims, both ways, whenever they may differ. After a
// failure or a lasting difference it pauses longer and longer, up to an interval.
func (r *Registry) reconcile(ctx context.Context) error {
	pause := wait.Between(r.retryDelay(), r.cfg.HeartbeatInterval)
	for pass := uint64(1); ; pass++ {
		select {
		case <-ctx.Done():
		case <-r.scan:
		}
		if ctx.Err() != nil {
			return nil
		}
		err := r.compareAll(ctx, pass)
		r.mu.Lock()
		if err != nil {
			r.fail("compare", err, 1)
			closeOnce(r.started) // sockets need not wait while Redis is down
			wait.Nudge(r.scan)
		} else {
			r.recovered("compare")
		}
		r.mu.Unlock()
		pause.Wait(ctx) // a lasting difference must not make this a busy loop
		if len(r.scan) == 0 {
			pause.Reset() // no reply has shown a difference since
		}
	}
}

// compareAll compares the index with the claims. The first time it also searches the whole registry
// for a former life, which may have had no index. A search for forgotten ids does so only
// without an index (NoReverseIndex, or a key of another type).
func (r *Registry) compareAll(ctx context.Context, pass uint64) error {
	r.mu.Lock()
	begun := time.Now()
	first, search := !r.ready, !r.table.searchUntil.IsZero()
	r.mu.Unlock()
	broken := r.scanIndex(ctx, pass)
	noIndex := r.cfg.NoReverseIndex || redis.HasErrorPrefix(broken, "WRONGTYPE ")
	if broken != nil && !noIndex || !first && !search {
		return broken
	}
	if first && !r.cfg.Unique || search && noIndex {
		if err := r.scanRegistry(ctx); err != nil {
			return err
		}
	}
	if first {
		if err := r.handedBack(ctx, 0); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = true
	closeOnce(r.started)
	if begun.After(r.table.searchUntil) {
		r.table.searchUntil = time.Time{}
	}
	return broken
}

func (r *Registry) scanIndex(ctx context.Context, pass uint64) error {
	if r.cfg.NoReverseIndex {
		return nil
	}
	r.mu.Lock()
	begun := r.table.batches
	r.mu.Unlock()
	pages := guard.Members(ctx, r.cfg.Client, r.keys.Devices(r.id), patiently)
	err := r.readPages(ctx, pass, pages, func(members []string) []string {
		failpoint.Hit(failpoint.Reconciling)
		return members
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.compareIndex(pass, begun)
	return nil
}

// scanRegistry hands back entries of this instance that are not held, which may be in no index.
func (r *Registry) scanRegistry(ctx context.Context) error {
	pages := guard.Fields(ctx, r.cfg.Client, r.keys.Registry(), patiently)
	return r.readPages(ctx, 0, pages, func(entries []string) (ids []string) {
		for entry := range slices.Chunk(entries, 2) {
			if len(entry) == 2 && entry[1] == r.id {
				ids = append(ids, entry[0])
			}
		}
		return ids
	})
}

// patiently reads each page in a call of its own.
var patiently = guard.Paging{Call: func(ctx context.Context, read func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return read(ctx)
}}

func (r *Registry) readPages(
	ctx context.Context, pass uint64, pages iter.Seq2[guard.Page, error], own func(items []string) (ids []string),
) error {
	for page, err := range pages {
		if err != nil {
			return err
		}
		r.mu.Lock()
		for _, id := range own(page.Items) {
			r.table.named(id, pass)
		}
		r.mu.Unlock()
		if err := r.handedBack(ctx, r.table.spare); err != nil {
			return err
		}
	}
	return nil
}

// handedBack waits until no more than most ids are queued to be written; if most is 0, until
// all are written. So a scan does not remember ids faster than they are handed back.
func (r *Registry) handedBack(ctx context.Context, most int) error {
	var done bool
	var failure error
	err := r.await(ctx, func() bool {
		done = r.table.urgent.Len() <= most && (most > 0 || r.table.idle())
		failure = r.failing["release"]
		return done || failure != nil
	})
	if err == nil && !done {
		err = fmt.Errorf("registry: hand back what is not held: %w", failure)
	}
	return err
}

func (t *table) index(h *holding, in bool) {
	h.wrote = t.batches
	if h.indexed != in {
		h.indexed = in
		if in {
			t.indexed++
		} else {
			t.indexed--
		}
	}
}

func (t *table) unindex(h *holding) {
	if h.indexed && h.state == foreign {
		t.enqueue(h, true)
	}
}

// named records that a scan of the index or the registry found id as this instance's. If it is
// not held, it is handed back.
func (t *table) named(id string, pass uint64) *holding {
	h := t.holdings[id]
	if h == nil {
		h = t.add(id, releasing)
	}
	h.scanned = pass
	if h.claim == nil && h.in == nil {
		t.set(h, releasing)
		t.enqueue(h, true)
	}
	return h
}

// begun is the value of batches before the scan with number pass.
func (t *table) compareIndex(pass, begun uint64) {
	for _, h := range t.holdings {
		// A scan finds the members that were there from its start to its end; it may miss later
		// ones.
		member := h.scanned == pass
		switch {
		case h.claim == nil || h.wrote >= begun || h.indexed == member:
		case h.state == standing && h.indexed:
			t.set(h, unconfirmed)
			t.enqueue(h, true)
		default:
			// Held, but the entry names another: nothing to write, but the belief was wrong.
			// Uncorrected, the sizes would differ for as long as the socket is open, and every
			// reply would cause a scan.
			t.index(h, member)
			t.unindex(h)
		}
	}
}

// indexDiffers reports whether an index of this size differs from the claims. While a write of
// unknown fate may change the size, it returns false.
func (t *table) indexDiffers(size int, now time.Time) bool {
	return size != t.indexed && (t.pending() == 0 || now.After(t.lateUntil))
}
