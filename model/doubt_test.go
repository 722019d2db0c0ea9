package model_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

// step is a tick of doubt.pml, in ms: so long that three of them are a TTL, and a GRACE as well.
const step = 30_800

// The weakened model breaks a promise at the end of each trace. The rule in Go must keep it.
func TestTheRuleInGoBearsTheTracesOfItsModel(t *testing.T) {
	t.Parallel()
	for _, tr := range traces(t, "doubt") {
		t.Run(tr.rule, func(t *testing.T) {
			r := &doubtReplay{t: t, fleet: doubt.Fleet{}, now: 1000 * step, holds: map[int]bool{}, off: map[int]bool{}}
			for _, event := range tr.events[:len(tr.events)-1] {
				r.happens(event)
			}
			r.ends(tr)
		})
	}
}

// doubtReplay is what doubt.pml knows, the times in ms.
type doubtReplay struct {
	t                   *testing.T
	fleet               doubt.Fleet
	now, since, refused int64
	holds               map[int]bool
	off                 map[int]bool // it does not beat; true: nor does it run
	down, turnsAway     bool
}

func (r *doubtReplay) happens(event string) {
	var n int
	r.now++
	switch {
	case strings.HasPrefix(event, "a tick of time"):
		r.passes(event)
	case match(event, "owner %d holds", &n), match(event, "owner %d is idle", &n): // for long
		r.holds[n] = strings.HasSuffix(event, "holds")
		r.now -= step
		r.beats(n)
		r.now += step
		r.beats(n)
	case match(event, "a device connects to owner %d", &n):
		r.holds[n] = true
		r.beats(n)
	case match(event, "the devices of owner %d leave", &n), match(event, "owner %d joins", &n):
		r.holds[n] = false
		r.beats(n)
	case match(event, "owner %d is mended, and beats", &n):
		r.beats(n)
	case match(event, "owner %d is cut off", &n):
		r.off[n] = false
	case match(event, "Redis turns owner %d away", &n):
		r.off[n], r.turnsAway, r.refused = false, true, r.now
	case event == "Redis turns a stranger away":
		r.refused = r.now
	case match(event, "owner %d dies", &n):
		r.off[n] = true
	case match(event, "owner %d says goodbye", &n), match(event, "owner %d says goodbye, and leaves an entry", &n):
		r.proves(n, doubt.Bye)
		r.off[n] = true
	case match(event, "owner %d is swept", &n):
	default:
		require.Fail(r.t, "what is this?", event)
	}
}

func (r *doubtReplay) proves(n int, is doubt.State) {
	r.fleet[id(n)] = r.fleet[id(n)].Proves(r.now, doubt.Own{Interval: 30_000, TTL: 90_000}, is)
}

func (r *doubtReplay) beats(n int) {
	delete(r.off, n)
	is := doubt.Idle
	if r.holds[n] {
		is = doubt.Holds
	}
	r.proves(n, is)
}

func (r *doubtReplay) passes(event string) {
	r.now += step
	down := strings.HasSuffix(event, "Redis does not answer")
	if down || r.down || strings.HasSuffix(event, "nobody listens") {
		r.since = r.now
	}
	for n := range r.holds {
		if _, off := r.off[n]; !off && !down && !r.down {
			r.beats(n)
		}
	}
	if r.turnsAway && !down {
		r.refused = r.now
	}
	r.down = down
	for _, spent := range r.fleet.Spent(r.now, r.since) {
		delete(r.fleet, spent)
	}
}

func (r *doubtReplay) verdict(id string) doubt.Doubt {
	return r.fleet[id].Verdict(r.now, r.since, r.refused, r.fleet.Together(id, r.now, r.since))
}

// ends is the last event, and what is promised then.
func (r *doubtReplay) ends(tr trace) {
	last, n := tr.events[len(tr.events)-1], 0
	r.happens(last)
	promise, _, _ := strings.Cut(tr.breaks, ":")
	switch {
	case tr.rule == "NOTHING_SWEPT":
		require.Empty(r.t, r.verdict(id(0)))
	case match(last, "owner %d is swept", &n):
		require.NotEmpty(r.t, r.verdict(id(n)), tr.breaks)
	case strings.HasPrefix(tr.rule, "REACH_"):
		require.Equal(r.t, doubt.Most, r.verdict(id(0)))
	case promise == "theft":
		for id, record := range r.fleet {
			require.False(r.t, record.Takes(r.now, r.since), id)
		}
	default: // something stays
		if promise == "kept" { // a GRACE counts ten times in Go
			r.now, r.refused = r.now+33*step, r.now+33*step
		}
		for n, dead := range r.off {
			if dead {
				require.Empty(r.t, r.verdict(id(n)), tr.breaks)
			}
		}
	}
}
