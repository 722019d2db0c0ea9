package registry

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed same.lua
var sameLua string

var sameScript = redis.NewScript(sameLua)

// ErrClientsDiffer ends Run when Client does not see the heartbeat that Control has just written: it is at another
// server or database, or reads from a replica. Nothing was registered. It ends Run after ten clear answers, tenths of
// an interval apart, so that a failover under way is no reason.
var ErrClientsDiffer = errors.New("registry: Client and Control are not at the same primary and database")

// differMost is how many clear answers it takes.
const differMost = 10

// sameServer returns nil if Client sees the heartbeat of this boot and may write where it stands. An error that is not
// ErrClientsDiffer or ErrSuperseded says nothing of where Client is. Only beats calls it.
func (r *Registry) sameServer(ctx context.Context, boot string) error {
	key := r.keys.Heartbeat(r.id)
	answer, err := sameScript.Run(ctx, r.cfg.Client, []string{key}, boot).Text()
	what := "Client does not see the heartbeat that Control wrote"
	switch {
	case err == nil && answer == "OK":
		return nil
	case err == nil && answer == "SUPERSEDED":
		return ErrSuperseded
	case err != nil && strings.HasPrefix(err.Error(), "READONLY"):
		what = "Client is at a replica"
	case err != nil:
		return err
	default:
		// Was it deleted or evicted in between? Then Control does not see it either.
		held, err := r.cfg.Control.Get(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if !strings.HasSuffix(held, "/"+boot) {
			return errors.New("registry: the heartbeat was gone as soon as it was written")
		}
	}
	err = fmt.Errorf("%w: %s", ErrClientsDiffer, what)
	if r.differ++; r.differ == differMost {
		r.end(err)
	}
	return err
}

// passing are errors by which a server says that it cannot now, and not that this client may not.
var passing = []string{
	"LOADING", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "ERR max number of clients",
}

// refused tells an answer that stays the same until somebody mends something: a wrong password, a user without rights,
// a replica instead of the primary, clients that differ.
func refused(err error) bool {
	var answer redis.Error
	switch {
	case errors.Is(err, ErrClientsDiffer):
		return true
	case !errors.As(err, &answer), errors.Is(err, redis.Nil):
		return false
	}
	return !slices.ContainsFunc(passing, func(p string) bool { return strings.HasPrefix(answer.Error(), p) })
}

// kind is what errors of one cause share: refusals, each other error of a server by its first word, and no answer.
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

// logFailure logs that an operation has begun to fail. What another operation fails of already is told once. Caller holds mu.
func (r *Registry) logFailure(op string, err error) {
	for other, e := range r.failing {
		if other != op && kind(e) == kind(err) {
			r.log.Debug("registry operation fails too", "op", op, "error", err)
			return
		}
	}
	if errors.Is(err, ErrClientsDiffer) {
		r.log.Error("Client and Control are not at the same primary and database: mend the options of one of them", "op", op, "error", err)
		return
	}
	if refused(err) {
		r.log.Error("Redis refuses this replica: mend its user, password or rights (ACL), or the address of the primary; it is tried again",
			"op", op, "error", err)
		return
	}
	r.log.Warn("registry operation fails, devices are served and it is tried again", "op", op, "error", err)
}
