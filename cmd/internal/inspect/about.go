package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/janitor"
)

// About is a replica's description of itself, under guard.Layout.About. Missing fields are unknown:
// programs of other versions may write others.
type About struct {
	Boot       string             `json:"boot"`
	Program    string             `json:"program"`
	Version    string             `json:"version"`
	Address    string             `json:"address"`
	Interval   string             `json:"interval"`
	TTL        string             `json:"ttl"`
	Registered uint64             `json:"registered,omitempty"`
	Passes     []janitor.Report   `json:"passes,omitempty"`
	UnderWay   []janitor.Progress `json:"under_way,omitempty"`
}

// of reports whether the life that wrote heartbeat h may have written a: an older program with the
// same id writes none, and must not get a newer one's.
func (a About) of(h Heartbeat) bool {
	return !h.Alive || !h.Boot.IsZero() && bootTime(a.Boot).Equal(h.Boot)
}

func (a About) replica(id string) Replica {
	p := Replica{Instance: id, Version: a.Version, Address: a.Address, Passes: a.Passes}
	p.Interval, _ = time.ParseDuration(a.Interval)
	p.TTL, _ = time.ParseDuration(a.TTL)
	return p
}

// settings prefers a description to a heartbeat, which is less exact on a slow network; 0: unknown.
func (h Heartbeat) settings(now time.Time, a About) (ttl, interval time.Duration) {
	ttl = h.ttl(now)
	if !h.Alive || ttl <= 0 || !a.of(h) {
		return ttl, 0
	}
	p := a.replica("")
	return cmp.Or(p.TTL, ttl), p.Interval
}

const longestAbout = 16 << 10

// mostAbouts bounds the bytes of one reading. Real ones have less than 1 KiB, a leader's a few.
const mostAbouts = 1 << 20

const aboutPage = 100

// reachable are the forms of an address at which somebody may be asked: host and port, no more.
var (
	reachable   = regexp.MustCompile(`(?i)^(\[[0-9a-f:.]+\]|[a-z0-9_.-]{1,253}):\d{1,5}$`)
	unspecified = regexp.MustCompile(`^(\[::\]|0\.0\.0\.0):`)
)

// hostAndPort returns "" for all else: anybody who writes to Redis may have written it.
func hostAndPort(address string) string {
	if !reachable.MatchString(address) || unspecified.MatchString(address) {
		return ""
	}
	return address
}

// Abouts leaves out missing and invalid descriptions, and all if this user may not read them. Of
// many it reads only the first.
func (r *Reader) Abouts(ctx context.Context, ids []string) (map[string]About, error) {
	all := make(map[string]About, len(ids))
	bytes := 0
	for page := range slices.Chunk(ids, aboutPage) {
		if bytes >= mostAbouts {
			break
		}
		p := r.client.Pipeline()
		for _, id := range page {
			beginning(ctx, p, r.keys.About(id), longestAbout)
		}
		said, err := texts(ctx, p, "the replicas' descriptions")
		if Refused(err) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		for i, text := range said {
			var a About
			bytes += len(text)
			if len(text) <= longestAbout && json.NewDecoder(strings.NewReader(text)).Decode(&a) == nil {
				a.Program, a.Version = printable.Clip(a.Program), printable.Clip(a.Version)
				a.Address = hostAndPort(a.Address)
				all[page[i]] = a
			}
		}
	}
	return all, nil
}
