package janitor

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/streak"
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

// logRecords is how many records LogBytes are where their size cannot be asked for.
func (c Config) logRecords() int64 {
	return max(logLeast, c.LogBytes/(recordItem*int64(c.DeleteBatch)+recordRest))
}

// trimStreaks log once what the server does not let this process do, and sweeping does without.
func trimStreaks(log *slog.Logger, records int64) (size, trim *streak.Streak) {
	size = streak.New(log, "size of the eviction log cannot be asked for: it is trimmed by number of records",
		"eviction log is trimmed by its size again", "records", records, "allow", "MEMORY USAGE, XLEN")
	trim = streak.New(log, "eviction log cannot be trimmed: it grows without bound",
		"eviction log is trimmed again", "allow", "XTRIM")
	return size, trim
}

// trimLog trims the eviction log to the newest LogBytes; the server trims by whole nodes. What
// this user may not do is no failure of the pass: it did what it is for.
func (p *Pass) trimLog(ctx context.Context) error {
	j := p.t.j
	if j.cfg.LogBytes < 0 {
		return nil
	}
	keep, err := p.logKeeps(ctx, j.cfg.LogBytes)
	refused := notAllowed(err)
	if err == nil || refused {
		j.logSize.Note(err)
	}
	if refused {
		keep, err = j.cfg.logRecords(), nil
	}
	if err != nil || keep == 0 {
		return err
	}
	err = p.Call(ctx, func(ctx context.Context) error {
		return p.Client().XTrimMaxLenApprox(ctx, p.Layout().Log(), keep, 0).Err()
	})
	if err == nil || notAllowed(err) {
		j.logTrim.Note(err)
		return nil
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
	text := serverError(err)
	return strings.HasPrefix(text, "NOPERM ") ||
		strings.HasPrefix(text, "ERR ") && !strings.HasPrefix(text, "ERR max number of clients")
}
