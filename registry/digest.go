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
	// digestParts is how many parts a digest has. A device that comes or goes while a scan runs makes
	// one of them incomparable, and not all.
	digestParts = 16
	// ownRounds: in one of so many rounds an owner looks at all of its claims, whatever a leader says.
	ownRounds = 4
	// remembered is how many earlier digests an owner can compare with: at one each interval/10, those
	// of ten intervals at least.
	remembered = 10 * shards
)

// A digest says which entries an owner has, in any order: in each part the sum of the hashes of
// their IMEIs. Two that are equal are of the same entries: of others by one chance in 2^64.
type digest [digestParts]uint64

func digestPart(hash uint64) int { return int(hash >> 60) }

func (d *digest) add(imei string) {
	hash := xxhash.Sum64String(imei)
	d[digestPart(hash)] += hash
}

func (d *digest) remove(imei string) {
	hash := xxhash.Sum64String(imei)
	d[digestPart(hash)] -= hash
}

// A scanned is what a full scan met of one owner, as it stands in Redis: see Layout.Scanned.
type scanned struct {
	listed       bool // the owner was on the roster when it was first met; not in Redis
	count        int
	took, expiry time.Duration // of the scan; of the key, when it was written
	digest       digest
	id           uint64 // of the scan; not read: two scans that met the same are two words
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

// publish tells each owner on the roster what this scan met of it, also that it met nothing: the
// word of an earlier scan would go on vouching. Who is not told checks its claims by itself when
// that has expired, so that it failed is no failure of the pass.
func (w *scan) publish(ctx context.Context, expiry time.Duration) {
	p, which := w.p, rand.Uint64()
	for page, err := range p.SetPages(ctx, p.Layout().Roster()) {
		if err != nil {
			p.Log().Debug("owners are not told what the full scan met", "error", err)
			return
		}
		err := p.Call(ctx, func(ctx context.Context) error {
			_, err := p.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, id := range page {
					var s scanned
					if m := w.met[id]; m != nil && !m.listed {
						continue // it came while the scan ran
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
			p.Log().Debug("owners are not told what the full scan met", "error", err)
			return
		}
	}
}

// A vouched is what full scans say of this owner's claims, and what the claims were meanwhile.
//
// A part is vouched for while it agrees with the newest scan: the scan met exactly the entries that
// this owner believed to stand, at some moment since the scan began. So each claim that stood then
// and still stands was seen in the registry by the scan; each that came later was written later. A
// part that disagrees proves nothing: devices may have come and gone while the scan ran. It is
// checked as if nobody had scanned. So a change can make a part look different, and never hides
// that an entry was lost before the scan came by.
type vouched struct {
	past   []standings       // oldest first
	last   string            // the scan's word that agreed is about
	agreed [digestParts]bool // by part
}

// standings is the digest of the claims that stand, since a time.
type standings struct {
	since time.Time
	digest
}

// note remembers what stands now.
func (v *vouched) note(now time.Time, d digest) {
	if n := len(v.past); n > 0 && v.past[n-1].digest == d {
		return
	}
	if len(v.past) == remembered {
		v.past = slices.Delete(v.past, 0, 1)
	}
	v.past = append(v.past, standings{now, d})
}

// compare takes what a scan that began then says; text is its word.
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

// forget is for when there is no word of a scan.
func (v *vouched) forget() { v.last, v.agreed = "", [digestParts]bool{} }

// checkTenth has the next tenth of what is believed to stand checked; turn counts them. What a full
// scan vouches for is left out, but in one of ownRounds rounds: a wrong leader can delay that a
// loss is found, and not prevent it.
func (t *table) checkTenth(turn int) {
	all := turn/shards%ownRounds == 0
	for _, d := range t.shards[turn%shards] {
		if all || !t.vouched.agreed[digestPart(xxhash.Sum64String(d.imei))] {
			t.checkStanding(d)
		}
	}
}

// scanWord is what the newest full scan says of this owner, as it is asked for with a beat; zero:
// it was not.
type scanWord struct {
	text *redis.StringCmd
	left *redis.DurationCmd
}

// askScanned asks for it.
func (r *Registry) askScanned(ctx context.Context, pipe redis.Pipeliner) scanWord {
	key := r.keys.Scanned(r.id)
	// In this order: if a new word comes in between, it is taken for a younger one.
	return scanWord{text: pipe.Get(ctx, key), left: pipe.PTTL(ctx, key)}
}

// readScanned takes the answer. What was not asked for, or cannot be read, vouches for nothing.
// Caller holds mu.
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
