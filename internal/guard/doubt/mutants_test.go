package doubt_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

// changed returns a rule that sees other records, or other settings of the server, than there are:
// as if a clause were left out.
func changed(in func(r Record) Record) rule {
	m := asIs
	m.together = func(f Fleet, id string, now, since int64) bool {
		other := maps.Clone(f)
		for y, r := range f {
			if y != id {
				other[y] = in(r)
			}
		}
		return other.Together(id, now, since)
	}
	return m
}

func verdictOf(change func(r Record, now int64, since, refused *int64, most *bool) Record) rule {
	m := asIs
	m.verdict = func(r Record, now, since, refused int64, most bool) Doubt {
		r = change(r, now, &since, &refused, &most)
		return r.Verdict(now, since, refused, most)
	}
	return m
}

func provesWithout(change func(was, is Record) Record) rule {
	m := asIs
	m.proves = func(r Record, now int64, own Own, is State) Record { return change(r, r.Proves(now, own, is)) }
	return m
}

// Each clause of the rule, left out, with a scene that shows it. Without one, random episodes must.
var mutants = map[string]struct {
	rule
	scene func(w *world)
}{
	"a heartbeat that is gone proves nothing while the record is fresh": {verdictOf(func(r Record, now int64, _, _ *int64, _ *bool) Record {
		r.Last = min(r.Last, now-r.TTL)
		return r
	}), nil},
	"refusals are waited for": {verdictOf(func(r Record, _ int64, _, refused *int64, _ *bool) Record { *refused = never; return r }), nil},
	"refusals are waited for ten GRACE only": {func() rule {
		m := asIs
		m.verdict = func(r Record, now, since, refused int64, most bool) Doubt {
			if why := r.Verdict(now, since, refused, most); why != None || now-refused >= r.Grace() {
				return why
			}
			return Refused
		}
		return m
	}(), nil},
	"most others are waited for": {verdictOf(func(r Record, _ int64, _, _ *int64, most *bool) Record { *most = false; return r }), nil},
	"they are waited for a GRACE only": {verdictOf(func(r Record, now int64, since, _ *int64, most *bool) Record {
		if *most && r.State != Bye && r.Fell() <= now {
			r.Last = max(r.Last, now-r.TTL-r.Due)
		}
		return r
	}), nil},
	"a plain owner's last beat may be unread": {verdictOf(func(r Record, _ int64, _, _ *int64, _ *bool) Record {
		if r.State == Plain {
			r.State = Holds
		}
		return r
	}), unread},
	"nobody misses idle owners": {changed(func(r Record) Record {
		if r.State == Idle {
			r.State = Holds
		}
		return r
	}), idleDieToo},
	"nor those that left": {changed(func(r Record) Record {
		if r.State == Bye {
			r.State = Holds
		}
		return r
	}), deployed},
	"who is back was off":           {changed(func(r Record) Record { r.Back = 0; return r }), firstStaysOff},
	"who came later proves nothing": {changed(func(r Record) Record { r.Born = 0; return r }), nil},
	"who is overdue is off":         {changed(func(r Record) Record { r.Due = r.TTL; return r }), slowly},
	"the dead of long before":       {changed(func(r Record) Record { r.TTL *= 10; return r }), bothDie},
	"an owner is born when it holds": {provesWithout(func(was, is Record) Record {
		if was.State == Idle {
			is.Born = was.Born
		}
		return is
	}), idleTakeOver},
	"a goodbye tells that it was off": {provesWithout(func(was, is Record) Record {
		if is.State == Bye {
			is.Back = was.Back
		}
		return is
	}), backAndGone},
	"a blind leader may have missed a beat": {func() rule {
		m := asIs
		m.seen = func(r Record, now, left int64, own Own, _ bool) Record { return r.Seen(now, left, own, false) }
		return m
	}(), blindly},
	"a record ahead of the clock": {func() rule {
		m := asIs
		m.seen = func(r Record, now, left int64, own Own, blind bool) Record {
			is := r.Seen(now, left, own, blind)
			if r.Last > now {
				is.Last = r.Last
			}
			return is
		}
		return m
	}(), leaps},
	"a record is kept for as long as it counts": {func() rule {
		m := asIs
		m.spent = func(f Fleet, now, _ int64) (ids []string) {
			for id, r := range f {
				if r.Fell() < now {
					ids = append(ids, id)
				}
			}
			return ids
		}
		return m
	}(), nil},
}

// TestMutants leaves each clause out: the oracle must object, as it does not to the whole rule.
func TestMutants(t *testing.T) {
	t.Parallel()
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if m.scene == nil {
				for seed := uint64(1); len(play(seed, m.rule).found) == 0; seed++ {
					require.Less(t, seed, uint64(40), "without this clause 40 episodes find nothing")
				}
				return
			}
			found := 0
			for seed := range uint64(20) {
				require.Empty(t, stage(seed, asIs, m.scene).found)
				found += len(stage(seed, m.rule, m.scene).found)
			}
			require.Positive(t, found, "without this clause the scene finds nothing")
		})
	}
}
