package sweeps

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/registry/internal/digest"
)

// met is an owner in whose name a scan found entries.
type met struct {
	listed bool // it was on the roster when first met
	digest.Finding
}

// publish stores this scan's findings for each owner on the roster, even if it found nothing: an
// earlier scan would otherwise go on vouching. Errors are ignored: without findings, owners check
// their own claims once the old ones have expired.
func (w *scan) publish(ctx context.Context, expiry time.Duration) {
	p, which := w.p, rand.Uint64()
	for page, err := range p.SetPages(ctx, p.Layout().Roster()) {
		if err == nil {
			err = p.Call(ctx, func(ctx context.Context) error {
				_, err := p.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
					for _, id := range page {
						var f digest.Finding
						if m := w.met[id]; m != nil && !m.listed {
							continue // it arrived during the scan
						} else if m != nil {
							f = m.Finding
						}
						f.Took, f.Expiry, f.Scan = w.took, expiry, which
						pipe.Set(ctx, p.Layout().Scanned(id), f.String(), expiry)
					}
					return nil
				})
				return err
			})
		}
		if err != nil {
			p.Log().Debug("could not publish the findings of the full scan", "error", err)
			return
		}
	}
}
