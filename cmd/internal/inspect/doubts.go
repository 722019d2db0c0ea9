package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

// Doubt is why the entries of a silent owner are kept, although nothing is held.
type Doubt struct {
	Reason string    `json:"reason"` // the runbook's: most, refused
	Until  time.Time `json:"until"`  // at the latest
}

// doubts judges the silent among ids as a leader does, by all records.
func (r *Reader) doubts(
	ctx context.Context, w Witness, now time.Time, beats map[string]Heartbeat, ids []string,
) (map[string]Doubt, error) {
	silent := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return beats[id].Alive })
	if len(silent) == 0 {
		return nil, nil
	}
	p := r.client.Pipeline()
	refused, records := p.HGet(ctx, r.keys.Witness(), "refused_at"), p.HGetAll(ctx, r.keys.Beats())
	if err := exec(ctx, p, "the owners' records"); err != nil {
		return nil, err
	}
	refusedAt, _ := refused.Int64()
	at, since := now.UnixMilli(), w.Since.UnixMilli()
	fleet := doubt.Fleet{}
	for id, text := range records.Val() {
		if x := doubt.Parse(text); x.TTL > 0 {
			fleet[id] = x
		}
	}
	found := map[string]Doubt{}
	for _, id := range silent {
		x := fleet[id]
		switch why := x.Verdict(at, since, refusedAt, fleet.Together(id, at, since)); {
		case x.TTL == 0:
		case why == doubt.Most, why == doubt.Refused:
			found[id] = Doubt{string(why), time.UnixMilli(x.Ends(since, why))}
		}
	}
	return found, nil
}
