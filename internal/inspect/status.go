package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
)

// Status is a fleet at one time.
type Status struct {
	Now       time.Time  `json:"now"`
	Leader    *Leader    `json:"leader"` // null: nobody leads
	Hold      *Hold      `json:"hold"`   // null: nothing holds deletes
	Witness   Witness    `json:"witness"`
	Heard     bool       `json:"heard"`   // somebody listens to Redis
	Entries   int64      `json:"entries"` // of the registry
	Instances []Instance `json:"instances"`
	Sweeps    []Last     `json:"sweeps"` // the last eviction of each, by the log
	// Passes are the leader's last ones, UnderWay those that take longer than a second, as it said
	// last.
	Passes   []janitor.Report   `json:"passes,omitempty"`
	UnderWay []janitor.Progress `json:"under_way,omitempty"`
	Redis    Server             `json:"redis"`
	// Unanswered are replicas that were asked and did not answer, with the error.
	Unanswered []string `json:"unanswered,omitempty"`
}

// Leader is who holds the lease.
type Leader struct {
	Instance string    `json:"instance"`
	Since    time.Time `json:"since,omitzero"` // zero: not known
	Epoch    uint64    `json:"epoch"`          // 0: it has not begun its term yet
	Address  string    `json:"address"`        // of its HTTP; "": not known
	// ExpiresIn is until the lease lapses unless it is renewed; "": it never does.
	ExpiresIn string `json:"expires_in"`
}

// LeaderSilent says that the leader has no heartbeat, and what follows; "": it has one, or there is
// no leader.
func (s Status) LeaderSilent() string {
	l := s.Leader
	if l == nil || l.ExpiresIn == "" || !slices.ContainsFunc(s.Instances, func(in Instance) bool {
		return in.ID == l.Instance && !in.Alive
	}) {
		return ""
	}
	return "it is silent: unless it renews its lease, another leads in about " + l.ExpiresIn
}

// Instance is one running replica, or one that left something behind.
type Instance struct {
	ID string `json:"id"`
	// Devices is how many it registered, by its index. Without one it is how many entries name it;
	// -1: not known, since the registry is too large to be counted for this.
	Devices   int64     `json:"devices"`
	Alive     bool      `json:"alive"`
	LastBeat  time.Time `json:"last_beat,omitzero"` // zero: not known
	Started   time.Time `json:"started,omitzero"`   // zero: not known
	ExpiresIn string    `json:"expires_in"`         // of the heartbeat
	TTL       string    `json:"ttl"`                // of the heartbeat; "": not known
	Interval  string    `json:"interval"`           // between heartbeats; "": not known
	Program   string    `json:"program,omitempty"`  // "": not known
	Version   string    `json:"version"`            // "": not known
	Address   string    `json:"address"`            // of its HTTP; "": not known
	// BadIndex: its index is a key of another type, which is left alone.
	BadIndex bool `json:"bad_index,omitempty"`
	// Old: an older writer, without boot token or not on the roster.
	Old bool `json:"old,omitempty"`
	// Differs says in which settings it differs from the fleet.
	Differs string `json:"differs,omitempty"`

	life float64 // of the heartbeat that is left, 0 to 1
}

// Life is how much of the heartbeat's life is left, 0 to 1; 0 also where that is not known.
func (i Instance) Life() float64 { return i.life }

// Same tells whether nothing has changed but that time has passed.
func (i Instance) Same(as Instance) bool {
	i.ExpiresIn, i.life = as.ExpiresIn, as.life
	return i == as
}

// Last is when a sweep last evicted something.
type Last struct {
	Sweep  string    `json:"sweep"`
	At     time.Time `json:"at"`
	Epoch  uint64    `json:"epoch"`
	Leader string    `json:"leader"`
	Owner  string    `json:"owner,omitempty"`
	Count  int       `json:"count"`
}

// Server is what INFO says. Empty: it does not say.
type Server struct {
	Version   string `json:"version"`
	Role      string `json:"role"`
	Policy    string `json:"maxmemory_policy"`
	MaxMemory int64  `json:"maxmemory"`
	Memory    int64  `json:"used_memory"`
	Clients   int64  `json:"clients"`

	info map[string]string
}

// seldom is what need not be read each time that a status is.
type seldom struct {
	server  Server
	counted map[string]int // entries by owner
	whole   bool           // counted are all entries
	sweeps  []Last
	abouts  func(ctx context.Context, ids []string) (map[string]About, error)
}

// Status reads what is known of a fleet. It costs a round trip for each thousand instances, and a
// few more.
func (r *Reader) Status(ctx context.Context) (Status, error) {
	now, err := r.now(ctx)
	if err != nil {
		return Status{}, err
	}
	k := seldom{abouts: r.abouts}
	if k.server, err = r.server(ctx); err != nil {
		return Status{}, err
	}
	if k.sweeps, err = r.lastEvictions(ctx, now); err != nil {
		return Status{}, err
	}
	if k.counted, k.whole, err = r.sample(ctx); err != nil {
		return Status{}, err
	}
	return r.status(ctx, now, k)
}

func (r *Reader) status(ctx context.Context, now time.Time, k seldom) (Status, error) {
	s := Status{Now: now, Redis: k.server, Instances: []Instance{}, Sweeps: k.sweeps}
	var err error
	if s.Witness, err = r.witness(ctx); err != nil {
		return s, err
	}
	s.Heard = s.Witness.heard(s.Now)
	if s.Hold, err = r.hold(ctx, s.Witness, s.Now); err != nil {
		return s, err
	}
	if s.Leader, err = r.leader(ctx, s.Now); err != nil {
		return s, err
	}
	return s, r.instances(ctx, &s, k)
}

// leader is who holds the lease, or nil.
func (r *Reader) leader(ctx context.Context, now time.Time) (*Leader, error) {
	h, held, err := lease.ReadHolder(ctx, r.client, r.keys.Lease())
	if err != nil || !held {
		return nil, err
	}
	l := &Leader{Instance: h.Instance, Epoch: h.Epoch}
	if h.TTL >= 0 {
		l.ExpiresIn = span(h.TTL)
	}
	// The epoch may be of the term before, until the log says that this one has begun.
	id := strconv.FormatUint(h.Epoch, 10) + "-0"
	opened, err := r.client.XRange(ctx, r.keys.Log(), id, id).Result()
	if err != nil {
		return nil, fmt.Errorf("inspect: read the eviction log: %w", err)
	}
	switch {
	case len(opened) == 1 && record(opened[0], now).Term != h.Token:
		l.Epoch = 0
	case len(opened) == 0: // not begun, or so long ago that the record was trimmed
		newest, err := r.client.XRevRangeN(ctx, r.keys.Log(), "+", "-", 1).Result()
		if err != nil {
			return nil, fmt.Errorf("inspect: read the eviction log: %w", err)
		}
		if len(newest) == 0 || epochOf(newest[0].ID) < h.Epoch {
			l.Epoch = 0
		}
	}
	l.Since = began(l.Epoch, now)
	return l, nil
}

// lastPages bounds how far back lastEvictions looks.
const lastPages = 3 * logPage

// lastEvictions is the newest record of each sweep that evicted something, by the sweeps' names.
func (r *Reader) lastEvictions(ctx context.Context, now time.Time) ([]Last, error) {
	found, n := map[string]Last{}, 0
	for rec, err := range r.newest(ctx, now) {
		if err != nil {
			return nil, err
		}
		if _, met := found[rec.Sweep]; !met && rec.Count > 0 {
			found[rec.Sweep] = Last{rec.Sweep, rec.At, rec.Epoch, rec.Leader, rec.Owner, rec.Count}
		}
		if n++; n >= lastPages {
			break
		}
	}
	last := []Last{}
	for _, sweep := range slices.Sorted(maps.Keys(found)) {
		last = append(last, found[sweep])
	}
	return last, nil
}

// countUpTo is how many entries Status counts by itself where an owner has no index, and looks at
// for owners that no roster names.
const countUpTo = 10 * pageSize

// instances adds the instances of the roster and those that entries name.
func (r *Reader) instances(ctx context.Context, s *Status, k seldom) error {
	entries, err := r.client.HLen(ctx, r.keys.Registry()).Result()
	if err != nil {
		return fmt.Errorf("inspect: size of the registry: %w", err)
	}
	s.Entries = entries
	roster, err := r.roster(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{} // by the roster?
	for id := range k.counted {
		known[id] = false
	}
	for _, id := range roster {
		known[id] = true
	}
	ids := slices.Sorted(maps.Keys(known))
	beats, err := r.heartbeats(ctx, ids)
	if err != nil {
		return err
	}
	abouts, err := k.abouts(ctx, ids)
	if err != nil {
		return err
	}
	s.Witness.settle(s.Now, beats, abouts)
	p := r.client.Pipeline()
	sizes := make([]*redis.IntCmd, len(ids))
	for i, id := range ids {
		sizes[i] = p.SCard(ctx, r.keys.Devices(id))
	}
	if len(ids) > 0 {
		if err := exec(ctx, p, "the indexes"); err != nil {
			return err
		}
	}
	for i, id := range ids {
		h := beats[id]
		in := Instance{ID: id, Devices: sizes[i].Val(), Alive: h.Alive, LastBeat: h.Beat, Started: h.Boot}
		in.BadIndex = wrongType(sizes[i].Err())
		if in.Devices == 0 && !k.whole {
			in.Devices = -1
		} else if in.Devices == 0 {
			in.Devices = int64(k.counted[id])
		}
		in.Old = h.Alive && (h.Boot.IsZero() || !known[id])
		if h.Alive {
			in.ExpiresIn = span(h.ExpiresIn)
		}
		if ttl, _ := h.settings(s.Now, abouts[id]); ttl > 0 {
			in.TTL, in.life = span(ttl), float64(h.ExpiresIn)/float64(ttl)
			want := s.Witness.TTL.Round(100 * time.Millisecond)
			// What was not written for want of memory was prolonged: its value is older than it.
			if want > 0 && !near(ttl, want) && !s.Redis.full() {
				in.Differs = "TTL " + Short(ttl) + ", fleet " + Short(want)
			}
		}
		if about, ok := abouts[id]; ok && about.of(h) {
			s.describe(&in, about.replica(id))
			in.Program = about.Program
			if s.Leader != nil && s.Leader.Instance == id {
				s.UnderWay = about.UnderWay
			}
		}
		s.Instances = append(s.Instances, in)
	}
	return nil
}

// settle takes the settings that most of those who live have for the fleet's: who ticked last may
// be the one that differs.
func (w *Witness) settle(now time.Time, beats map[string]Heartbeat, abouts map[string]About) {
	var ttls, intervals []time.Duration
	for id, h := range beats {
		ttl, interval := h.settings(now, abouts[id])
		if ttl > 0 {
			ttls = append(ttls, ttl)
		}
		if interval > 0 {
			intervals = append(intervals, interval)
		}
	}
	if ttl := most(ttls); ttl > 0 && !near(ttl, w.TTL) {
		w.TTL = ttl
	}
	if interval := most(intervals); interval > 0 {
		w.Interval = interval
	}
}

// most is what more than half, and two at least, have, or 0.
func most(all []time.Duration) time.Duration {
	if len(all) < 2 {
		return 0
	}
	slices.Sort(all)
	middle, same := all[len(all)/2], 0
	for _, d := range all {
		if near(d, middle) {
			same++
		}
	}
	if 2*same <= len(all) {
		return 0
	}
	return middle
}

// near tells whether two durations are the same, as exactly as a heartbeat tells its TTL.
func near(got, want time.Duration) bool { return (got - want).Abs() <= want/20 }

// sample counts entries by owner, of the whole registry if it is small, else of its first pages.
func (r *Reader) sample(ctx context.Context) (counted map[string]int, whole bool, err error) {
	counted = map[string]int{}
	seen := map[string]bool{} // a scan may meet an entry twice
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var page []string
		page, cursor, err = r.client.HScan(ctx, r.keys.Registry(), cursor, "", pageSize).Result()
		if err != nil {
			return nil, false, fmt.Errorf("inspect: scan the registry: %w", err)
		}
		for pair := range slices.Chunk(page, 2) {
			if !seen[pair[0]] {
				seen[pair[0]] = true
				counted[pair[1]]++
			}
		}
		if len(seen) >= countUpTo && cursor != 0 {
			return counted, false, nil
		}
	}
	return counted, true, nil
}

// server reads INFO. A server that refuses it stays unknown.
func (r *Reader) server(ctx context.Context) (Server, error) {
	at, err := r.at(ctx)
	if err != nil {
		return Server{}, err
	}
	text, err := at.Info(ctx).Result()
	if err != nil {
		if Refused(err) {
			return Server{}, nil
		}
		return Server{}, fmt.Errorf("inspect: INFO: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = v
		}
	}
	num := func(name string) int64 { n, _ := strconv.ParseInt(info[name], 10, 64); return n }
	return Server{
		Version: cmp.Or(info["valkey_version"], info["redis_version"]),
		Role:    info["role"], Policy: info["maxmemory_policy"],
		MaxMemory: num("maxmemory"), Memory: num("used_memory"), Clients: num("connected_clients"), info: info,
	}, nil
}

// full tells whether writes that need memory are refused.
func (s Server) full() bool { return s.MaxMemory > 0 && s.Memory >= s.MaxMemory }

// A Replica is what one replica says of itself.
type Replica struct {
	Instance, Version, Address string
	Interval, TTL              time.Duration
	Leading                    bool
	Passes                     []janitor.Report // its last ones
}

// Add adds what a replica said of itself.
func (s *Status) Add(p Replica) {
	i := slices.IndexFunc(s.Instances, func(in Instance) bool { return in.ID == p.Instance })
	if i < 0 {
		s.Instances = append(s.Instances,
			Instance{ID: p.Instance, Devices: -1, Differs: "not in this Redis, or cut off from it"})
		i = len(s.Instances) - 1
	}
	s.describe(&s.Instances[i], p)
}

// describe adds what a replica says of itself to what is known of it.
func (s *Status) describe(in *Instance, p Replica) {
	if s.Leader != nil && s.Leader.Instance == p.Instance {
		s.Leader.Address, s.Passes = p.Address, p.Passes
	}
	in.Version, in.Address = p.Version, p.Address
	if p.Interval > 0 {
		in.Interval, in.TTL = span(p.Interval), span(p.TTL)
	}
	if want := s.Witness.Interval; want > 0 && p.Interval > 0 && p.Interval != want && in.Differs == "" {
		in.Differs = "interval " + Short(p.Interval) + ", fleet " + Short(want)
	}
}

// Owner tells whether an instance lives, and whether anything but its heartbeat is known of it. Of
// a registry that is too large to be counted it is taken to be known.
func (r *Reader) Owner(ctx context.Context, id string) (known, alive bool, err error) {
	p := r.client.Pipeline()
	beat := p.Exists(ctx, r.keys.Heartbeat(id))
	onRoster := p.SMIsMember(ctx, r.keys.Roster(), id)
	index := p.Exists(ctx, r.keys.Devices(id))
	if err := exec(ctx, p, "the owner's keys"); err != nil {
		return false, false, err
	}
	if alive = beat.Val() > 0; alive || is(onRoster) || index.Val() > 0 {
		return true, alive, nil
	}
	counted, whole, err := r.sample(ctx)
	return !whole || counted[id] > 0, false, err
}
