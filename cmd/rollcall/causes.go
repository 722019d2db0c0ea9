package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

// memberByMember adds the masters of a Redis Cluster that do not answer.
func memberByMember(ctx context.Context, r *inspect.Reader, err error) error {
	if err == nil || ctx.Err() != nil || inspect.Partial(err) || errors.Is(err, cli.ErrNo) {
		return err
	}
	away := r.Away(ctx)
	if len(away) == 0 {
		return err
	}
	text := strings.Join(away, "; ") + "; start it, or promote a replica of it"
	if strings.Contains(err.Error(), "CLUSTERDOWN") {
		text += "; until then the other masters refuse every key (cluster-require-full-coverage)"
	}
	return fmt.Errorf("%s: %w", text, err)
}

// advised puts the cause first, with advice for the operator.
func (f *fleet) advised(err error) error {
	var network net.Error
	var replica *url.Error
	text := fmt.Sprint(err)
	says := func(any ...string) bool {
		for _, a := range any {
			if strings.Contains(text, a) {
				return true
			}
		}
		return false
	}
	at := f.base.Redis
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case says("WRONGPASS", "NOAUTH"):
		return fmt.Errorf("the Redis at %s refuses this user or password; mend them in REDIS_URL, or "+
			"REDIS_PASSWORD_FILE: %w", at, err)
	case inspect.NoRedis(err) != "":
		return fmt.Errorf("%s is no Redis: it answers %s; mend the host and port in REDIS_URL: %w", at,
			inspect.NoRedis(err), err)
	case says("x509:", "tls: "):
		return fmt.Errorf("no TLS with Redis at %s; look at rediss:// in REDIS_URL, and at REDIS_TLS_CA_FILE: %w",
			at, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the Redis at %s ends the connection at once; it may want TLS (rediss:// in REDIS_URL), "+
			"or be no Redis: %w", at, err)
	case says("DB index is out of range"):
		return fmt.Errorf("this Redis has no database of that number; mend the end of REDIS_URL: %w", err)
	case errors.As(err, &network) && !errors.As(err, &replica):
		hint := ""
		if network.Timeout() && at.Single != nil && at.Single.TLSConfig != nil {
			hint = "; it may speak no TLS (redis:// in REDIS_URL)"
		}
		return fmt.Errorf("no answer of Redis at %s%s: %w", at, hint, err)
	case says("WRONGTYPE"):
		return fmt.Errorf("%w; rollcall doctor says which keys are somebody else's", err)
	case says("NOPERM"):
		return fmt.Errorf("%w; rollcall doctor says which rights lack", err)
	}
	return err
}
