package registry

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/registry/internal/digest"
)

const (
	// ownRounds: see checkTenth.
	ownRounds = 4
	// remembered is the number of earlier digests kept: one per interval/10, so at least ten
	// intervals.
	remembered = 10 * shards
)

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
	agreed [digest.Parts]bool
}

type standings struct {
	since time.Time
	digest.Digest
}

func (v *vouched) note(now time.Time, d digest.Digest) {
	if n := len(v.past); n > 0 && v.past[n-1].Digest == d {
		return
	}
	if len(v.past) == remembered {
		v.past = slices.Delete(v.past, 0, 1)
	}
	v.past = append(v.past, standings{now, d})
}

func (v *vouched) compare(text string, d digest.Digest, began time.Time) {
	v.last = text
	v.agreed = [digest.Parts]bool{}
	for i, s := range v.past {
		if i+1 < len(v.past) && v.past[i+1].since.Before(began) {
			continue // it was over before the scan began
		}
		for part := range d {
			v.agreed[part] = v.agreed[part] || s.Digest[part] == d[part]
		}
	}
}

func (v *vouched) forget() { v.last, v.agreed = "", [digest.Parts]bool{} }

// checkTenth checks a tenth of the standing claims, except those that a full scan vouches for; in
// one of ownRounds rounds it checks all: a faulty leader can delay the discovery of a loss, but not
// prevent it.
func (t *table) checkTenth(turn int) {
	all := turn/shards%ownRounds == 0
	for _, h := range t.shards[turn%shards] {
		if all || !t.vouched.agreed[digest.Part(h.id)] {
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

// Findings that were not read, or cannot be, vouch for nothing. The caller holds mu.
func (r *Registry) readScanned(word scanWord, now time.Time) {
	v := &r.table.vouched
	if word.text == nil || word.text.Err() != nil || word.left.Err() != nil || word.left.Val() <= 0 {
		v.forget()
		return
	}
	text, left := word.text.Val(), word.left.Val()
	s, err := digest.Parse(text)
	switch {
	case err != nil:
		v.forget()
	case text != v.last:
		v.note(now, r.table.stand)
		v.compare(text, s.Digest, now.Add(left-s.Expiry-s.Took))
	}
}
