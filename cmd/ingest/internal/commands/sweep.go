package commands

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

type sweep struct{ layout registry.Layout }

// NewSweep returns the sweep "commands", for janitor.Config.Sweeps.
func NewSweep(l registry.Layout) janitor.Sweeper { return sweep{l} }

func (sweep) Name() string { return "commands" }

func (sweep) Interval() time.Duration { return 0 }

func (s sweep) Run(ctx context.Context, p *janitor.Pass) error {
	prefix := outboundPrefix(s.layout)
	pattern := literal.Replace(prefix) + "*"
	// A cursor is valid on one server only. If the keys' slot moves meanwhile, the next pass finds
	// the streams that this one misses.
	at, err := keyless.At(ctx, p.Client(), prefix)
	if err != nil {
		return err
	}
	for cursor := uint64(0); ; {
		var keys []string
		err := p.Call(ctx, func(ctx context.Context) (err error) {
			keys, cursor, err = at.Scan(ctx, cursor, pattern, int64(p.PageSize())).Result()
			return err
		})
		if err != nil {
			return err
		}
		if err := s.page(ctx, p, keys); err != nil || cursor == 0 {
			return err
		}
	}
}

var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

func (s sweep) page(ctx context.Context, p *janitor.Pass, keys []string) error {
	var owners []string
	for _, key := range keys {
		if owner := strings.TrimPrefix(key, outboundPrefix(s.layout)); p.Owner() == "" || p.Owner() == owner {
			owners = append(owners, owner)
		}
	}
	if len(owners) == 0 {
		return nil
	}
	slices.Sort(owners)
	owners = slices.Compact(owners) // a scan may return a key twice
	p.AddScanned(len(owners))
	judged, err := p.Liveness(ctx, owners)
	if err != nil {
		return err
	}
	for _, owner := range owners {
		switch judged[owner] {
		case janitor.Unreadable:
			p.Skip(janitor.SkipUnreadable, 1)
		case janitor.Doubted:
			p.Skip(janitor.SkipDoubted, 1)
		case janitor.Dead:
			if err := s.owner(ctx, p, owner); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s sweep) owner(ctx context.Context, p *janitor.Pass, owner string) error {
	// Not earlier: a pass with nothing to sweep is not held.
	if err := p.CheckHeld(ctx); err != nil {
		return err
	}
	stream := Outbound(s.layout, owner)
	for from := "-"; ; {
		var entries []redis.XMessage // without texts
		err := p.Call(ctx, func(ctx context.Context) (err error) {
			entries, err = cutPage(ctx, p.Client(), stream, from, p.BatchSize(), maxID, "id")
			return err
		})
		if redis.HasErrorPrefix(err, "WRONGTYPE ") { // not a stream: kept
			p.Skip(janitor.SkipUnreadable, 1)
			return nil
		}
		if err != nil {
			return err
		}
		if len(entries) == 0 && (from != "-" || p.DryRun()) {
			return nil // the batch that emptied the stream deleted it
		}
		answer, err := p.Delete(ctx, s.batch(owner, stream, entries))
		if err != nil || answer.Verdict != guard.Done || len(entries) == 0 {
			return err
		}
		from = "(" + entries[len(entries)-1].ID
	}
}

func (s sweep) batch(owner, stream string, entries []redis.XMessage) janitor.Batch {
	b := janitor.Batch{Owner: owner, Body: sweepBody, Keys: []string{stream, Responses(s.layout)}}
	for _, m := range entries {
		key := stream
		if id := field(m, "id"); validID(id) {
			key = state(s.layout, id)
		}
		b.Keys, b.Items = append(b.Keys, key), append(b.Items, m.ID)
	}
	if len(entries) == 0 { // only the stream itself is left
		b.Keys, b.Items = append(b.Keys, stream), append(b.Items, "0-0")
	}
	return b
}
