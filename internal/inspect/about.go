package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/janitor"
)

// About is what a replica says of itself in Redis, under guard.Layout.About. Fields that are
// missing are not known: a program of another version may write others.
type About struct {
	Boot     string `json:"boot"` // the life that says it: the boot token of its heartbeat
	Program  string `json:"program"`
	Version  string `json:"version"`
	Address  string `json:"address"` // of its HTTP
	Interval string `json:"interval"`
	TTL      string `json:"ttl"`
	// Passes are a leader's last ones, UnderWay those that take longer than a second.
	Passes   []janitor.Report   `json:"passes,omitempty"`
	UnderWay []janitor.Progress `json:"under_way,omitempty"`
}

// of tells whether it may be of the life that wrote a heartbeat: an older program of the same id
// says nothing of itself, and what a newer one said before must not stand for it.
func (a About) of(h Heartbeat) bool {
	return !h.Alive || !h.Boot.IsZero() && bootTime(a.Boot).Equal(h.Boot)
}

func (a About) replica(id string) Replica {
	p := Replica{Instance: id, Version: a.Version, Address: a.Address, Passes: a.Passes}
	p.Interval, _ = time.ParseDuration(a.Interval) // what is not understood is not known
	p.TTL, _ = time.ParseDuration(a.TTL)
	return p
}

// settings are those of one who lives, as it says, else as its heartbeat shows, which on a slow way
// to Redis is less exact; 0: not known.
func (h Heartbeat) settings(now time.Time, a About) (ttl, interval time.Duration) {
	ttl = h.ttl(now)
	if !h.Alive || ttl <= 0 || !a.of(h) {
		return ttl, 0
	}
	p := a.replica("")
	return cmp.Or(p.TTL, ttl), p.Interval
}

// longestAbout is the most bytes that are read of a replica's description.
const longestAbout = 16 << 10

// clip returns the beginning of a text that anybody can write.
func clip(text string) string {
	const longest = 200
	return strings.ToValidUTF8(text[:min(len(text), longest)], "")
}

// abouts reads what replicas say of themselves. Who says nothing, or nothing that is understood, is
// not in the answer, and neither is anybody where this may not be read.
func (r *Reader) abouts(ctx context.Context, ids []string) (map[string]About, error) {
	all := make(map[string]About, len(ids))
	for page := range slices.Chunk(ids, pageSize) {
		p := r.client.Pipeline()
		for _, id := range page {
			r.beginning(ctx, p, r.keys.About(id), longestAbout)
		}
		said, err := texts(ctx, p, "what replicas say of themselves")
		if r.readsWhole(err) {
			return r.abouts(ctx, ids)
		}
		if Refused(err) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		for i, text := range said {
			var a About
			if len(text) <= longestAbout && json.NewDecoder(strings.NewReader(text)).Decode(&a) == nil {
				a.Program, a.Version, a.Address = clip(a.Program), clip(a.Version), clip(a.Address)
				all[page[i]] = a
			}
		}
	}
	return all, nil
}
