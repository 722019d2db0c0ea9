package janitor

import (
	"context"
	"errors"
	"log/slog"
	"strings"

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

var errNotTrimmed = errors.New("janitor: this user may not, or the server cannot")

// trimLog leaves the newest LogBytes. A missing right does not fail the pass, whose work is done.
func (p *Pass) trimLog(ctx context.Context) error {
	j := p.t.j
	if j.cfg.LogBytes < 0 {
		return nil
	}
	return p.Call(ctx, func(ctx context.Context) error {
		sized, trimmed, err := j.guard.Trim(ctx, j.cfg.LogBytes, logLeast, j.cfg.logRecords())
		if err != nil {
			return err
		}
		j.logSize.Note(unless(sized))
		j.logTrim.Note(unless(trimmed))
		return nil
	})
}

func unless(done bool) error {
	if done {
		return nil
	}
	return errNotTrimmed
}

// notAllowed reports a lasting refusal: this user has no right to a command, or the server does not
// know it.
func notAllowed(err error) bool {
	text := serverError(err)
	return strings.HasPrefix(text, "NOPERM ") ||
		strings.HasPrefix(text, "ERR ") && !strings.HasPrefix(text, "ERR max number of clients")
}
