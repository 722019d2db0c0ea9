package janitor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// often is the interval below which a pass that found nothing is quiet.
const often = 10 * time.Second

func (j *Janitor) span(ctx context.Context, name string, attrs ...slog.Attr) (
	_ context.Context, end func(err error, attrs ...slog.Attr),
) {
	if j.cfg.StartSpan == nil {
		return ctx, func(error, ...slog.Attr) {}
	}
	return j.cfg.StartSpan(ctx, name, attrs...)
}

// ofOwner adds the owner's name, if there is one.
func ofOwner(owner string, attrs ...slog.Attr) []slog.Attr {
	if owner != "" {
		attrs = append(attrs, slog.String("owner", owner))
	}
	return attrs
}

func (t *termState) spanPass(ctx context.Context, s Sweeper, req Request) (
	_ context.Context, end func(r *Report, last Outcome),
) {
	ctx, done := t.j.span(ctx, "pass", ofOwner(req.Owner,
		slog.String("sweep", s.Name()), slog.Uint64("epoch", t.term.Epoch()))...)
	seldom := req.asked || cmp.Or(s.Interval(), t.j.cfg.Interval) >= often
	return ctx, func(r *Report, last Outcome) {
		var err error
		if r.Outcome == Failed {
			err = errors.New(r.Error)
		}
		attrs := []slog.Attr{
			slog.String("outcome", string(r.Outcome)), slog.Int("scanned", r.Scanned),
			slog.Int("condemned", r.Condemned), slog.Int("evicted", r.Evicted),
			slog.String("reason", r.Reason), slog.Bool("dry_run", r.DryRun),
		}
		if !seldom && r.Condemned == 0 && r.news(last) == "" {
			attrs = append(attrs, slog.Bool("quiet", true))
		}
		done(err, attrs...)
	}
}

func (j *Janitor) spanBatch(ctx context.Context, sweep string, b Batch) (
	_ context.Context, end func(id guard.BatchID, a guard.Answer, err error),
) {
	ctx, done := j.span(ctx, "batch", ofOwner(b.Owner, slog.String("sweep", sweep), slog.Int("items", len(b.Items)))...)
	return ctx, func(id guard.BatchID, a guard.Answer, err error) {
		var attrs []slog.Attr
		if id.N > 0 {
			attrs = append(attrs, slog.String("batch", id.String()))
		}
		if a.Verdict != "" {
			attrs = append(attrs, slog.String("verdict", string(a.Verdict)), slog.Int("deleted", a.Deleted))
		}
		held, isHeld := errors.AsType[*HeldError](err)
		if isHeld {
			attrs = append(attrs, slog.String("held", held.Reason))
		}
		if isHeld || errors.Is(err, ErrFenced) || ctx.Err() != nil {
			err = nil
		}
		done(err, attrs...)
	}
}
