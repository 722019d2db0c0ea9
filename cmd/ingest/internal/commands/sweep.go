package commands

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// sweep answers the commands of dead instances.
type sweep struct{ layout registry.Layout }

// NewSweep returns the sweep "commands", for janitor.Config.Sweeps. It finds the streams of
// commands by the pattern of their names and judges their owners by the heartbeats. It answers the
// commands of the dead with instance_lost, and deletes their streams.
func NewSweep(l registry.Layout) janitor.Sweeper { return sweep{l} }

func (sweep) Name() string { return "commands" }

// Interval is that of the full scan.
func (sweep) Interval() time.Duration { return 0 }

func (s sweep) Run(ctx context.Context, p *janitor.Pass) error {
	prefix := outboundPrefix(s.layout)
	pattern := literal.Replace(prefix) + "*"
	// One server all the time: a cursor means something only there. Where the slot of the keys moves
	// meanwhile, the next pass finds what this one missed.
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

// literal escapes the special characters of a pattern of SCAN.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// page judges the owners of the streams in a page of the scan, and sweeps the dead ones.
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
		case janitor.Dead:
			if err := s.owner(ctx, p, owner); err != nil {
				return err
			}
		}
	}
	return nil
}

// owner answers everything in the stream of one dead instance.
func (s sweep) owner(ctx context.Context, p *janitor.Pass, owner string) error {
	// Not earlier: a pass without anything to sweep is not held.
	if err := p.CheckHeld(ctx); err != nil {
		return err
	}
	stream := Outbound(s.layout, owner)
	for from := "-"; ; {
		var entries []named
		err := p.Call(ctx, func(ctx context.Context) (err error) {
			entries, err = s.names(ctx, p, stream, from)
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
		if err != nil || answer.Verdict == guard.Alive || len(entries) == 0 {
			return err
		}
		from = "(" + entries[len(entries)-1].at
	}
}

// named is an entry of a stream; id is that of its command, empty if it is of no use.
type named struct{ at, id string }

// names reads the ids of a page of a stream, without the commands' texts.
func (sweep) names(ctx context.Context, p *janitor.Pass, stream, from string) (found []named, err error) {
	out, err := namesScript.RunRO(ctx, p.Client(), []string{stream}, from, p.BatchSize(), maxID).StringSlice()
	for pair := range slices.Chunk(out, 2) {
		if len(pair) == 2 {
			if !validID(pair[1]) {
				pair[1] = ""
			}
			found = append(found, named{pair[0], pair[1]})
		}
	}
	return found, err
}

func (s sweep) batch(owner, stream string, entries []named) janitor.Batch {
	b := janitor.Batch{Owner: owner, Body: sweepBody, Keys: []string{stream, Responses(s.layout)}}
	for _, e := range entries {
		key := stream
		if e.id != "" {
			key = state(s.layout, e.id)
		}
		b.Keys, b.Items = append(b.Keys, key), append(b.Items, e.at)
	}
	if len(entries) == 0 { // the stream itself is what is left
		b.Keys, b.Items = append(b.Keys, stream), append(b.Items, "0-0")
	}
	return b
}
