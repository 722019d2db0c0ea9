package harness

import (
	"time"

	"github.com/rollcall-redis/rollcall/chaos/judge"
)

func (w *Environment) tells(note func(f *judge.Facts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	note(&w.told)
}

// Hit counts deliberate faults of processes.
func (w *Environment) Hit(n int) { w.Struck.Add(int64(n)) }

// Died records a death, or what looks like one, for C6.
func (w *Environment) Died(r *Replica, how string) { w.noteDeath(w.death(r, how)) }

func (w *Environment) death(r *Replica, how string) judge.Death {
	w.Hit(1)
	return judge.Death{Instance: r.ID, At: time.Now(), How: how, Led: w.Holder() == r.ID}
}

func (w *Environment) noteDeath(d judge.Death) {
	w.tells(func(f *judge.Facts) { f.Deaths = append(f.Deaths, d) })
}

// Outage records that an instance ("": everybody) cannot reach Redis until the returned function is
// called.
func (w *Environment) Outage(id string) (back func()) {
	var n int
	w.tells(func(f *judge.Facts) {
		n = len(f.Outages)
		now := time.Now()
		f.Outages = append(f.Outages, judge.Outage{Instance: id, From: now, Until: now.Add(time.Hour)})
	})
	return func() { w.tells(func(f *judge.Facts) { f.Outages[n].Until = time.Now() }) }
}

// CountersBeginAnew records that do restarts the server's counters.
func (w *Environment) CountersBeginAnew(do func()) {
	begun := time.Now()
	do()
	took := judge.Outage{From: begun, Until: time.Now()}
	w.tells(func(f *judge.Facts) { f.Restarts = append(f.Restarts, took) })
}

// Planted records that the scenario itself writes an owner's entries.
func (w *Environment) Planted(owner string) {
	w.tells(func(f *judge.Facts) { f.Planted[owner] = true })
}

// SlowerSettings records that an instance has its own, and the others know.
func (w *Environment) SlowerSettings(r *Replica, interval, ttl time.Duration) {
	s := judge.Setting{Instance: r.ID, HeartbeatInterval: interval, HeartbeatTTL: ttl, From: time.Now()}
	w.tells(func(f *judge.Facts) { f.Settings = append(f.Settings, s) })
}

// SlowerSettingsEnd records that it has ended.
func (w *Environment) SlowerSettingsEnd(r *Replica) {
	w.tells(func(f *judge.Facts) {
		for i := range f.Settings {
			if s := &f.Settings[i]; s.Instance == r.ID && s.Until.IsZero() {
				s.Until = time.Now()
			}
		}
	})
}

// Executed records devices' commands; without arguments it only starts the record.
func (w *Environment) Executed(did ...judge.Execution) {
	w.tells(func(f *judge.Facts) {
		if f.Executed == nil {
			f.Executed = []judge.Execution{}
		}
		f.Executed = append(f.Executed, did...)
	})
}
