package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Intercept is a hook that is called in place of each command, or pipeline, which send sends. The
// error that it returns is a single command's.
type Intercept func(ctx context.Context, cmds []redis.Cmder, send func() error) error

// DialHook changes nothing.
func (Intercept) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is for single commands.
func (i Intercept) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return i(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook is for pipelines and transactions.
func (i Intercept) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return i(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

// Fail has an error answer each command, and returns it.
func Fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}
