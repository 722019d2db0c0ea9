package registry

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"
)

const (
	// digestParts divides a digest, so that an id that comes or goes during a scan makes only
	// one part incomparable.
	digestParts = 16
	// ownRounds: in one of this many rounds an owner checks all its claims, whatever a scan vouches
	// for.
	ownRounds = 4
	// remembered is the number of earlier digests kept: one per interval/10, so at least ten
	// intervals.
	remembered = 10 * shards
)

// A digest is the set of an owner's entries: for each part, the sum of the hashes of its ids.
// Equal digests mean equal sets, except with a probability of 2^-64.
type digest [digestParts]uint64

func digestPart(hash uint64) int { return int(hash >> 60) }

func (d *digest) add(id string) {
	hash := xxhash.Sum64String(id)
	d[digestPart(hash)] += hash
}

func (d *digest) remove(id string) {
	hash := xxhash.Sum64String(id)
	d[digestPart(hash)] -= hash
}

// A scanned is a full scan's findings about one owner, as stored in Layout.Scanned.
type scanned struct {
	listed       bool // the owner was on the roster when first met; not stored
	count        int
	took, expiry time.Duration // of the scan; of the key, when it was written
	digest       digest
	id           uint64 // of the scan, never parsed: it makes equal findings of two scans differ
}

func (s scanned) String() string {
	bytes := make([]byte, 0, 8*digestParts)
	for _, part := range s.digest {
		bytes = binary.BigEndian.AppendUint64(bytes, part)
	}
	return fmt.Sprintf("%d %d %d %x %x", s.count, s.took.Milliseconds(), s.expiry.Milliseconds(), bytes, s.id)
}

func parseScanned(text string) (s scanned, err error) {
	var took, expiry int64
	var digits string
	if _, err := fmt.Sscan(text, &s.count, &took, &expiry, &digits); err != nil {
		return s, err
	}
	bytes, err := hex.DecodeString(digits)
	if err != nil || len(bytes) != 8*digestParts {
		return s, errors.Join(err, fmt.Errorf("registry: a digest of %d bytes", len(bytes)))
	}
	for i := range s.digest {
		s.digest[i] = binary.BigEndian.Uint64(bytes[8*i:])
	}
	s.took, s.expiry = time.Duration(took)*time.Millisecond, time.Duration(expiry)*time.Millisecond
	return s, nil
}

// publish stores this scan's findings for each owner on the roster, even if it found nothing: an
// earlier scan would otherwise go on vouching. Errors are ignored: without findings, owners check
// their own claims once the old ones have expired.
func (w *scan) publish(ctx context.Context, expiry time.Duration) {
	p, which := w.p, rand.Uint64()
	for page, err := range p.SetPages(ctx, p.Layout().Roster()) {
		if err != nil {
			p.Log().Debug("could not publish the findings of the full scan", "error", err)
			return
		}
		err := p.Call(ctx, func(ctx context.Context) error {
			_, err := p.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, id := range page {
					var s scanned
					if m := w.met[id]; m != nil && !m.listed {
						continue // it arrived during the scan
					} else if m != nil {
						s = *m
					}
					s.took, s.expiry, s.id = w.took, expiry, which
					pipe.Set(ctx, p.Layout().Scanned(id), s.String(), expiry)
				}
				return nil
			})
			return err
		})
		if err != nil {
			p.Log().Debug("could not publish the findings of the full scan", "error", err)
			return
		}
	}
}

// A vouched holds the full scan's findings about this owner's claims, and the digests of its claims
// meanwhile.
//
// A part is vouched for while it agrees with the newest scan: at some moment since the scan began,
// the owner believed in exactly the entries that the scan found. So the scan saw each claim that
// stood then and still does, and later ones were written later. A part that disagrees proves
// nothing, since ids may have moved during the scan; it is checked as if there had been none.
// So a change can make a part differ, but never hides an earlier loss.
type vouched struct {
	past   []standings
	last   string // the findings that agreed was computed from
	agreed [digestParts]bool
}

type standings struct {
	since time.Time
	digest
}

func (v *vouched) note(now time.Time, d digest) {
	if n := len(v.past); n > 0 && v.past[n-1].digest == d {
		return
	}
	if len(v.past) == remembered {
		v.past = slices.Delete(v.past, 0, 1)
	}
	v.past = append(v.past, standings{now, d})
}

func (v *vouched) compare(text string, d digest, began time.Time) {
	v.last = text
	v.agreed = [digestParts]bool{}
	for i, s := range v.past {
		if i+1 < len(v.past) && v.past[i+1].since.Before(began) {
			continue // it was over before the scan began
		}
		for part := range d {
			v.agreed[part] = v.agreed[part] || s.digest[part] == d[part]
		}
	}
}

func (v *vouched) forget() { v.last, v.agreed = "", [digestParts]bool{} }

// checkTenth checks the next tenth of the claims that are believed to be registered; turn counts
// the tenths. It skips those that a full scan vouches for, except in one of ownRounds rounds: a
// faulty leader can delay the discovery of a loss, but not prevent it.
func (t *table) checkTenth(turn int) {
	all := turn/shards%ownRounds == 0
	for _, h := range t.shards[turn%shards] {
		if all || !t.vouched.agreed[digestPart(xxhash.Sum64String(h.id))] {
			t.checkStanding(h)
		}
	}
}

// scanWord is the newest full scan's findings about this owner, read with a beat; zero if not read.
type scanWord struct {
	text *redis.StringCmd
	left *redis.DurationCmd
}

func (r *Registry) askScanned(ctx context.Context, pipe redis.Pipeliner) scanWord {
	key := r.keys.Scanned(r.id)
	// In this order, findings that arrive in between look younger, not older.
	return scanWord{text: pipe.Get(ctx, key), left: pipe.PTTL(ctx, key)}
}

// readScanned takes the answer. Findings that were not read, or cannot be, vouch for nothing. The
// caller holds mu.
func (r *Registry) readScanned(word scanWord, now time.Time) {
	v := &r.table.vouched
	if word.text == nil || word.text.Err() != nil || word.left.Err() != nil || word.left.Val() <= 0 {
		v.forget()
		return
	}
	text, left := word.text.Val(), word.left.Val()
	s, err := parseScanned(text)
	switch {
	case err != nil:
		v.forget()
	case text != v.last:
		v.note(now, r.table.stand)
		v.compare(text, s.digest, now.Add(left-s.expiry-s.took))
	}
}
