package janitor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// logLeast is how many log records always stay: enough for every reply that may still be
	// waited for.
	logLeast = 100
	// recordItem and recordRest are what a record takes where its size cannot be asked for: bytes for
	// each item of a full batch, and for all else. An IMEI takes 18; longer items make the log
	// larger than it should be.
	recordItem, recordRest = 32, 512

	// What trimming may not be allowed to do, as Status names it.
	checkLogSize = "log_size"
	checkLogTrim = "log_trim"
)

// trimLog trims the eviction log to the newest LogBytes; the server trims by whole nodes. What
// this user may not do is no failure of the pass: it did what it is for.
func (p *Pass) trimLog(ctx context.Context) error {
	most, log := p.t.j.cfg.LogBytes, p.t.j.log
	if most < 0 {
		return nil
	}
	keep, err := p.logKeeps(ctx, most)
	if notAllowed(err) {
		keep = max(logLeast, most/(recordItem*int64(p.t.j.cfg.DeleteBatch)+recordRest))
		if p.t.j.refusals.add(checkLogSize) {
			log.Warn("size of the eviction log cannot be asked for: it is trimmed by number of records",
				"records", keep, "allow", "MEMORY USAGE, XLEN", "error", err)
		}
		err = nil
	} else if err == nil {
		p.t.j.refusals.remove(checkLogSize)
	}
	if err != nil || keep == 0 {
		return err
	}
	err = p.Call(ctx, func(ctx context.Context) error {
		return p.Client().XTrimMaxLenApprox(ctx, p.Layout().Log(), keep, 0).Err()
	})
	if notAllowed(err) {
		if p.t.j.refusals.add(checkLogTrim) {
			log.Warn("eviction log cannot be trimmed: it grows without bound", "allow", "XTRIM", "error", err)
		}
		return nil
	}
	if err == nil {
		p.t.j.refusals.remove(checkLogTrim)
	}
	return err
}

// logKeeps is how many records LogBytes are, by the average size of those that are there, but
// never fewer than logLeast; 0: there is nothing to trim.
func (p *Pass) logKeeps(ctx context.Context, most int64) (int64, error) {
	var used, length *redis.IntCmd
	err := p.Call(ctx, func(ctx context.Context) error {
		pipe := p.Client().Pipeline()
		used, length = pipe.MemoryUsage(ctx, p.Layout().Log()), pipe.XLen(ctx, p.Layout().Log())
		_, err := pipe.Exec(ctx)
		return err
	})
	if errors.Is(err, redis.Nil) { // no such key any more
		return 0, nil
	}
	if err != nil || used.Val() <= most {
		return 0, err
	}
	return max(logLeast, int64(float64(length.Val())*float64(most)/float64(used.Val()))), nil
}

// notAllowed tells a refusal that lasts from one that passes: this user has no right to a command,
// or the server does not know it.
func notAllowed(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return strings.HasPrefix(text, "NOPERM ") ||
		strings.HasPrefix(text, "ERR ") && !strings.HasPrefix(text, "ERR max number of clients")
}

// refusals remembers what the server does not let this process do, and sweeping does without, so
// that each is logged once. It is safe for concurrent use.
type refusals struct {
	mu  sync.Mutex
	off []string
}

// add notes a refusal, and tells whether it is news.
func (r *refusals) add(check string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.off, check) {
		return false
	}
	r.off = append(r.off, check)
	return true
}

// remove notes that it is allowed by now.
func (r *refusals) remove(check string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = slices.DeleteFunc(r.off, func(off string) bool { return off == check })
}

// list names them, behind others.
func (r *refusals) list(others []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(others, r.off)
}
