package partition

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rollcall-redis/rollcall/janitor"
)

// Status covers all partitions: counts are sums, Leading means at least one, Leader and Epoch are
// the first one's. Witness is that of the partition held longest, or of one whose last tick failed,
// with the checks that are off in any.
// Sweeps has one report per sweep, the sum with the worst outcome. On a leader only its own
// partitions count: others report the rest.
func (j *Janitor) Status() janitor.Status {
	parts := make([]janitor.Status, len(j.parts))
	for k, part := range j.parts {
		parts[k] = part.Status()
	}
	return statusOf(parts)
}

func statusOf(parts []janitor.Status) janitor.Status {
	all := parts[0]
	if len(parts) == 1 {
		return all
	}
	leads := slices.ContainsFunc(parts, func(s janitor.Status) bool { return s.Leading })
	if leads && !all.Leading {
		all.Sweeps = nil
	}
	for _, s := range parts[1:] {
		all.Leading = all.Leading || s.Leading
		all.Evicted += s.Evicted
		all.Unsettled += s.Unsettled
		all.Passes = append(all.Passes, s.Passes...)
		if s.Leading || !leads {
			all.Sweeps = append(all.Sweeps, s.Sweeps...)
		}
		all.Pace = cmp.Or(all.Pace, s.Pace)
		all.Paused = cmp.Or(all.Paused, s.Paused)
		evicted, off := all.Witness.Evicted+s.Witness.Evicted, slices.Concat(all.Witness.ChecksOff, s.Witness.ChecksOff)
		if worse(s.Witness, all.Witness) {
			all.Witness = s.Witness
		}
		slices.Sort(off)
		all.Witness.Evicted, all.Witness.ChecksOff = evicted, slices.Compact(off)
	}
	all.Sweeps = Sum(all.Sweeps)
	return all
}

// worse reports whether a allows fewer deletes than b. A partition that this replica does not
// observe never counts as worse.
func worse(a, b janitor.WitnessStatus) bool {
	switch {
	case a.LastTick.IsZero() || b.LastTick.IsZero():
		return b.LastTick.IsZero()
	case (a.Error == "") != (b.Error == ""):
		return a.Error != ""
	}
	return a.HeldFor > b.HeldFor
}

var outcomes = []janitor.Outcome{janitor.Done, janitor.Held, janitor.Lost, janitor.Failed}

// Sum returns one report per sweep: counts are sums, and the outcome, with its reason and error, is
// the worst. Started is the earliest, Seconds the longest.
func Sum(reports []janitor.Report) (all []janitor.Report) {
	for _, r := range reports {
		i := slices.IndexFunc(all, func(a janitor.Report) bool { return a.Sweep == r.Sweep })
		if i < 0 {
			r.Spared = maps.Clone(r.Spared)
			all = append(all, r)
			continue
		}
		a := &all[i]
		a.Scanned += r.Scanned
		a.Condemned += r.Condemned
		a.Evicted += r.Evicted
		for reason, n := range r.Spared {
			if a.Spared == nil {
				a.Spared = map[janitor.SkipReason]int{}
			}
			a.Spared[reason] += n
		}
		a.Started, a.Seconds = earlier(a.Started, r.Started), max(a.Seconds, r.Seconds)
		if slices.Index(outcomes, r.Outcome) > slices.Index(outcomes, a.Outcome) {
			a.Outcome, a.Reason, a.Error = r.Outcome, r.Reason, r.Error
		}
	}
	return all
}
