package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
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
	// Partitions is about those of the registry; nil: there is one. Where there are several, Leader is
	// that of the first, Hold and Witness are those of the worst, but Witness.Evicted is the sum, and
	// Heard says that somebody listens in each. Redis is the server of the first.
	Partitions *Partitions `json:"partitions,omitempty"`
	// Cut is how many more instances rosters name, which are not looked at.
	Cut int64 `json:"cut,omitempty"`
	// Damaged are keys of another type than they must have.
	Damaged []Damaged `json:"damaged,omitempty"`
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

	silent bool // it has no heartbeat
}

// LeaderSilent says that the leader has no heartbeat, and what follows; "": it has one, or there is
// no leader.
func (s Status) LeaderSilent() string {
	l := s.Leader
	if l == nil || s.Partitions != nil || l.ExpiresIn == "" || !l.silent {
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
	// Differs says in which settings it differs from the fleet, or in which partitions it has no
	// heartbeat.
	Differs string `json:"differs,omitempty"`
	// SilentIn are the partitions in which it has no heartbeat, while it has one in others.
	SilentIn []int `json:"silent_in,omitempty"`

	life float64 // of the heartbeat that is left, 0 to 1
}

// Life is how much of the heartbeat's life is left, 0 to 1; 0 also where that is not known.
func (i Instance) Life() float64 { return i.life }

// Same tells whether nothing has changed but that time has passed.
func (i Instance) Same(as Instance) bool {
	i.ExpiresIn, i.life = as.ExpiresIn, as.life
	return reflect.DeepEqual(i, as)
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

// Status reads what is known of a fleet. It costs a round trip for each thousand instances, and a
// few more; so much of each partition, if there are several. Heartbeats are then read of as many
// partitions as fit into mostBeats, and at least of one.
func (r *Reader) Status(ctx context.Context) (Status, error) {
	parts, err := r.parts(ctx)
	if err != nil {
		return Status{}, err
	}
	now, err := r.now(ctx)
	if err != nil {
		return Status{}, err
	}
	s := newSurvey(r, parts)
	if s.server, err = parts[0].server(ctx); err != nil {
		return Status{}, err
	}
	if s.sweeps, err = lastEvictions(ctx, parts, now); err != nil {
		return Status{}, err
	}
	return s.read(ctx, now, r.abouts)
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
	if l.silent, err = r.isSilent(ctx, h.Instance); err != nil {
		return nil, err
	}
	if l.Epoch, err = r.begunEpoch(ctx, h, now); err != nil {
		return nil, err
	}
	l.Since = began(l.Epoch, now)
	return l, nil
}

func (r *Reader) isSilent(ctx context.Context, id string) (bool, error) {
	n, err := r.client.Exists(ctx, r.keys.Heartbeat(id)).Result()
	if err != nil {
		return false, fmt.Errorf("inspect: heartbeat of the leader: %w", err)
	}
	return n == 0, nil
}

// begunEpoch returns the epoch of the holder's term, or 0 if the term has not begun. The holder's
// epoch may be the previous term's until the log has this one's first record. If somebody has
// overwritten it, only the log has the right one.
func (r *Reader) begunEpoch(ctx context.Context, h lease.Holder, now time.Time) (uint64, error) {
	term, err := r.termOf(ctx, h.Epoch, now)
	if err != nil || term == h.Token {
		return h.Epoch, err
	}
	newest, err := r.headsUpTo(ctx, 1, "XREVRANGE", "+", "-", now)
	if err != nil || len(newest) == 0 {
		return 0, err
	}
	epoch := epochOf(newest[0].ID)
	if term == "" && h.Epoch > 0 && epoch >= h.Epoch {
		return h.Epoch, nil // so long ago that its record was trimmed
	}
	if term, err = r.termOf(ctx, epoch, now); err != nil || term != h.Token {
		return 0, err
	}
	return epoch, nil
}

// termOf returns the token of the term that has this epoch; "": it has not begun, or its record was
// trimmed.
func (r *Reader) termOf(ctx context.Context, epoch uint64, now time.Time) (string, error) {
	id := strconv.FormatUint(epoch, 10) + "-0"
	opened, err := r.headsUpTo(ctx, 1, "XRANGE", id, id, now)
	if err != nil || len(opened) == 0 {
		return "", err
	}
	return opened[0].Term, nil
}

// lastPages bounds how far back lastEvictions looks.
const lastPages = 3 * logPage

// lastEvictions is the newest record of each sweep that evicted something, by the sweeps' names.
func lastEvictions(ctx context.Context, parts []*Reader, now time.Time) ([]Last, error) {
	found, n := map[string]Last{}, 0
	for rec, err := range newest(ctx, parts, nil, now) {
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

// settle takes the settings that most of those who live have for the fleet's: who ticked last may
// be the one that differs.
func (w *Witness) settle(beats map[string]beat, abouts map[string]About) {
	var ttls, intervals []time.Duration
	for id, b := range beats {
		ttl, interval := b.settings(b.now, abouts[id])
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

// sample counts entries by owner, of the whole registry if it is small, else of its first pages:
// about upTo entries.
func (r *Reader) sample(ctx context.Context, upTo int) (counted map[string]int, whole bool, err error) {
	counted = map[string]int{}
	seen := map[string]bool{} // a scan may meet an entry twice
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		page, err := guard.HScan(ctx, r.client, r.keys.Registry(), cursor, pageSize)
		if wrongType(err) {
			return counted, true, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("inspect: scan the registry: %w", err)
		}
		for pair := range slices.Chunk(page.Items, 2) {
			if !seen[pair[0]] {
				seen[pair[0]] = true
				counted[pair[1]]++
			}
		}
		cursor = page.Next
		if len(seen) >= upTo && cursor != 0 {
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
		s.Leader.Address = p.Address
		if s.Partitions == nil {
			s.Passes = p.Passes
		}
	}
	if s.Partitions != nil {
		s.led(p)
	}
	in.Version, in.Address = p.Version, p.Address
	if p.Interval > 0 {
		in.Interval, in.TTL = span(p.Interval), span(p.TTL)
	}
	if want := s.Witness.Interval; want > 0 && p.Interval > 0 && p.Interval != want && in.Differs == "" {
		in.Differs = "interval " + Short(p.Interval) + ", fleet " + Short(want)
	}
}
