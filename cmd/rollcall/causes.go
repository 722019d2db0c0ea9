package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

// memberByMember adds the masters of a Redis Cluster that do not answer.
func memberByMember(ctx context.Context, r *inspect.Reader, err error) error {
	if err == nil || ctx.Err() != nil || inspect.Partial(err) || errors.Is(err, cli.ErrNo) {
		return err
	}
	if away := r.Away(ctx); len(away) > 0 {
		return fmt.Errorf("%s; start it, or promote a replica of it: %w", strings.Join(away, "; "), err)
	}
	return err
}

// advised puts the cause first, with advice for the operator.
func (f *fleet) advised(err error) error {
	switch means, do := inspect.Cause(err); {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case means == "" || errors.Is(err, cli.ErrNo) || errors.As(err, new(*refusal)) || inspect.Partial(err):
		return err
	default:
		return fmt.Errorf("%s (Redis: %s). %s: %w", means, f.base.Redis, do, err)
	}
}
