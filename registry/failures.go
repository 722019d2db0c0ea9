package registry

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// fail counts a failure. It logs the first of a row, and the first refusal of a row that began
// otherwise, since somebody has to act on that. A lost answer between two refusals, as on a slow
// network, starts no new row. recovered ends the row. Callers hold mu.
func (r *Registry) fail(op string, err error, n int) {
	if errors.Is(err, ErrSuperseded) || errors.Is(err, context.Canceled) {
		return // reported elsewhere, or the end of Run
	}
	r.metrics.failures.WithLabelValues(op).Add(float64(n))
	if r.failing[op] == nil || refused(err) && !r.toldRefusal[op] {
		r.logFailure(op, err)
	}
	r.failing[op] = err
	r.restoring.owed = true
	r.checkFails = r.checkFails && op != "heal"
	r.toldRefusal[op] = r.toldRefusal[op] || refused(err)
}

func (r *Registry) recovered(op string) {
	if r.failing[op] != nil {
		delete(r.failing, op)
		delete(r.toldRefusal, op)
		r.log.Info("registry operation works again", "op", op)
	}
}

// logFailure logs at debug level if another operation already fails for the same reason. The caller
// holds mu.
func (r *Registry) logFailure(op string, err error) {
	level, text := slog.LevelWarn, "registry operation failed; sockets are still served, retrying"
	switch {
	case errors.Is(err, ErrClientsDiffer):
		level, text = slog.LevelError,
			"Client and Control are not at the same primary and database: fix the options of one of them"
	case refused(err):
		level, text = slog.LevelError, "Redis refuses this replica: "+
			"fix its user, password or rights (ACL), or the address of the primary; retrying"
	}
	for _, e := range r.failing {
		if kind(e) == kind(err) {
			level, text = slog.LevelDebug, "registry operation also failed"
		}
	}
	r.log.Log(context.Background(), level, text, "op", op, "error", err)
}

// passing are errors of a server that cannot serve anybody now; they are not about this client.
var passing = []string{
	"LOADING", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
	"ASK ", "MOVED ", "ERR max number of clients", "READONLY former primary",
}

// refused reports an answer that stays the same until somebody fixes something: a wrong password, a
// user without rights, a replica instead of the primary, clients that differ.
func refused(err error) bool {
	var answer redis.Error
	switch {
	case errors.Is(err, ErrClientsDiffer):
		return true
	case !errors.As(err, &answer), errors.Is(err, redis.Nil):
		return false
	}
	return !slices.ContainsFunc(passing, func(p string) bool {
		return strings.HasPrefix(answer.Error(), p)
	})
}

// kind groups errors by cause: refusals, other errors of a server by their first word, and no
// answer.
func kind(err error) string {
	var answer redis.Error
	switch {
	case refused(err):
		return "refused"
	case errors.As(err, &answer):
		word, _, _ := strings.Cut(answer.Error(), " ")
		return word
	}
	return ""
}
