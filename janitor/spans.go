package janitor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
)

// Call these only if Config.StartSpan is set, so that without a tracer they cost nothing.

// often is the interval below which a pass that found nothing is quiet.
const often = 10 * time.Second

func (j *Janitor) spanTerm(ctx context.Context, t term) (_ context.Context, end func(cause error)) {
	ctx, done := j.cfg.StartSpan(ctx, "term", slog.Uint64("epoch", t.Epoch()))
	return ctx, func(cause error) { done(nil, slog.String("end", cause.Error())) }
}

func (t *termState) spanOpen() (_ context.Context, end func(err error)) {
	ctx, done := t.j.cfg.StartSpan(t.ctx, "open", slog.Uint64("epoch", t.term.Epoch()))
	// A new log, or a failover, may have raised the epoch meanwhile.
	return ctx, func(err error) { done(err, slog.Uint64("epoch", t.term.Epoch())) }
}

func (t *termState) spanPass(ctx context.Context, s Sweeper, req Request, last Outcome) (
	_ context.Context, end func(r *Report),
) {
	attrs := []slog.Attr{slog.String("sweep", s.Name()), slog.Uint64("epoch", t.term.Epoch())}
	if req.Owner != "" {
		attrs = append(attrs, slog.String("owner", req.Owner))
	}
	ctx, done := t.j.cfg.StartSpan(ctx, "pass", attrs...)
	seldom := req.asked || cmp.Or(s.Interval(), t.j.cfg.Interval) >= often
	return ctx, func(r *Report) {
		var err error
		if r.Outcome == Failed {
			err = errors.New(r.Error)
		}
		attrs := []slog.Attr{
			slog.String("outcome", string(r.Outcome)), slog.Int("scanned", r.Scanned),
			slog.Int("condemned", r.Condemned), slog.Int("evicted", r.Evicted),
		}
		for reason, n := range r.Spared {
			attrs = append(attrs, slog.Int("spared."+string(reason), n))
		}
		if r.Reason != "" {
			attrs = append(attrs, slog.String("reason", r.Reason))
		}
		if r.DryRun {
			attrs = append(attrs, slog.Bool("dry_run", true))
		}
		if !seldom && r.Condemned == 0 && r.news(last) == "" {
			attrs = append(attrs, slog.Bool("quiet", true))
		}
		done(err, attrs...)
	}
}

func (r *reaper) spanBatch(ctx context.Context, sweep string, b Batch) (
	_ context.Context, end func(id guard.BatchID, a guard.Answer, err error),
) {
	attrs := []slog.Attr{slog.String("sweep", sweep), slog.Int("items", len(b.Items))}
	if b.Owner != "" {
		attrs = append(attrs, slog.String("owner", b.Owner))
	}
	ctx, done := r.t.j.cfg.StartSpan(ctx, "batch", attrs...)
	return ctx, func(id guard.BatchID, a guard.Answer, err error) {
		var attrs []slog.Attr
		if id.N > 0 {
			attrs = append(attrs, slog.String("batch", id.String()))
		}
		if a.Verdict != "" {
			attrs = append(attrs, slog.String("verdict", string(a.Verdict)), slog.Int("deleted", a.Deleted))
		}
		if held, isHeld := errors.AsType[*HeldError](err); isHeld {
			err = nil
			attrs = append(attrs, slog.String("held", held.Reason))
		}
		if errors.Is(err, ErrFenced) || ctx.Err() != nil {
			err = nil
		}
		done(err, attrs...)
	}
}
