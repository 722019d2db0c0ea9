package registry

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// fail counts a failure. It logs the first of an outage, by whichever operation, and the first
// refusal, since somebody has to act on that. recovered ends the outage. Callers hold mu.
func (r *Registry) fail(op string, err error, n int) {
	if errors.Is(err, ErrReplaced) || errors.Is(err, context.Canceled) {
		return // reported elsewhere, or the end of Run
	}
	r.metrics.failures.WithLabelValues(op).Add(float64(n))
	r.failing[op] = err
	r.restoring.owed = r.restoring.owed || op != "listen"
	refusal := refused(err)
	if r.logged[refusal] != "" {
		return
	}
	r.logged[refusal] = op
	level, text := slog.LevelWarn, "registry operation failed; sockets are still served, retrying"
	if refusal {
		level, text = slog.LevelError, "Redis refuses this replica: "+
			"fix its user, password or rights (ACL), or the address of the primary; retrying"
	}
	r.log.Log(context.Background(), level, text, "op", op, "error", err)
}

func (r *Registry) recovered(op string) {
	if r.failing[op] != nil {
		delete(r.failing, op)
		maps.DeleteFunc(r.logged, func(_ bool, by string) bool { return by == op })
		r.log.Info("registry operation works again", "op", op)
	}
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
	if !errors.As(err, &answer) || errors.Is(err, redis.Nil) {
		return false
	}
	return !slices.ContainsFunc(passing, func(p string) bool {
		return strings.HasPrefix(answer.Error(), p)
	})
}
