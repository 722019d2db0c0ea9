package janitor

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// auditLeast is how many audit records always stay: enough for every reply that may still be
// waited for.
const auditLeast = 100

// trimAudit trims the audit stream to the newest AuditBytes. Records differ in size, so the length to keep is
// taken from their average; and the server trims by whole nodes. A server that cannot say what a key
// takes keeps everything.
func (p *Pass) trimAudit(ctx context.Context) error {
	most, key := p.t.j.cfg.AuditBytes, p.Layout().Audit()
	if most < 0 {
		return nil
	}
	var used, length int64
	err := p.Call(ctx, func(ctx context.Context) (err error) {
		if used, err = p.Client().MemoryUsage(ctx, key).Result(); err != nil || used <= most {
			return err
		}
		length, err = p.Client().XLen(ctx, key).Result()
		return err
	})
	if failedInside(err) || err == redis.Nil { // no such command, or no such key any more
		return nil
	}
	if err != nil || used <= most || length == 0 {
		return err
	}
	keep := max(auditLeast, int64(float64(length)*float64(most)/float64(used)))
	return p.Call(ctx, func(ctx context.Context) error {
		return p.Client().XTrimMaxLenApprox(ctx, key, keep, 0).Err()
	})
}
