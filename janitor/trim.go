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
	// logLeast is the number of log records that always stay: enough for every outstanding reply.
	logLeast = 100
	// recordItem and recordRest estimate a record's size, in bytes, if Redis does not report it:
	// per item of a full batch, and the rest. An id of 15 digits takes 18; longer items make
	// the log larger than it should be.
	recordItem, recordRest = 32, 512

	// Status lists these if trimming is not allowed something.
	checkLogSize = "log_size"
	checkLogTrim = "log_trim"
)

func (c Config) logRecords() int64 {
	return max(logLeast, c.LogBytes/(recordItem*int64(c.DeleteBatch)+recordRest))
}

func trimStreaks(log *slog.Logger, records int64) (size, trim *streak.Streak) {
	size = streak.New(log, "cannot read the size of the eviction log; trimming it by number of records",
		"trimming the eviction log by size again", "records", records, "allow", "MEMORY USAGE, XLEN")
	trim = streak.New(log, "cannot trim the eviction log; it grows without bound",
		"trimming the eviction log again", "allow", "XTRIM")
	return size, trim
}

// trimLog leaves the newest LogBytes; the server trims whole nodes. A missing right does not fail
// the pass, whose work is done.
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

// logKeeps returns how many records LogBytes hold, by the average size of the existing ones, at
// least logLeast; 0 if there is nothing to trim.
func (p *Pass) logKeeps(ctx context.Context, most int64) (int64, error) {
	var used, length *redis.IntCmd
	err := p.Call(ctx, func(ctx context.Context) error {
		pipe := p.Client().Pipeline()
		used, length = pipe.MemoryUsage(ctx, p.Layout().Log()), pipe.XLen(ctx, p.Layout().Log())
		_, err := pipe.Exec(ctx)
		return err
	})
	if errors.Is(err, redis.Nil) { // the key no longer exists
		return 0, nil
	}
	if err != nil || used.Val() <= most {
		return 0, err
	}
	return max(logLeast, int64(float64(length.Val())*float64(most)/float64(used.Val()))), nil
}

// notAllowed reports a lasting refusal: this user has no right to a command, or the server does not
// know it.
func notAllowed(err error) bool {
	text := serverError(err)
	return strings.HasPrefix(text, "NOPERM ") ||
		strings.HasPrefix(text, "ERR ") && !strings.HasPrefix(text, "ERR max number of clients")
}
