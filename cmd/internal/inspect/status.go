package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
)

// Status is a fleet's state at one time: docs/reference/http.md explains each field.
type Status struct {
	Now        time.Time          `json:"now"`
	Leader     *Leader            `json:"leader"`
	Hold       *Hold              `json:"hold"`
	Witness    Witness            `json:"witness"`
	Heard      bool               `json:"heard"`
	Entries    int64              `json:"entries"`
	Instances  []Instance         `json:"instances"`
	Sweeps     []Record           `json:"sweeps"` // the last eviction of each
	Passes     []janitor.Report   `json:"passes,omitempty"`
	UnderWay   []janitor.Progress `json:"under_way,omitempty"`
	Redis      Server             `json:"redis"`
	Partitions *Partitions        `json:"partitions,omitempty"`
	Cut        int64              `json:"cut,omitempty"`
	Losses     []loss             `json:"lost_lately,omitempty"`
	Damaged    []damagedKey       `json:"damaged,omitempty"`
	Unreadable []string           `json:"unreadable,omitempty"`
	Unread     []unreadServer     `json:"unread,omitempty"`

	servers     []Server           // none: one, from Redis
	own         Instance           // a replica that no key names; its Knows counts
	parts       []glance           // those that answer; none: one, from the fields above
	overwritten *overwrittenNumber // its number of partitions in Redis is not the fleet's
	hour        []timeline.Minute  // oldest first
	taken       map[string]int     // lately, by rule
	evicted     int                // entries, lately
	gone        int                // entries, within the last hour
}

// Leader holds the lease.
type Leader struct {
	Instance  string    `json:"instance"`
	Since     time.Time `json:"since,omitzero"`
	Epoch     uint64    `json:"epoch"` // 0: its term has not begun yet, or has no number any more
	Address   string    `json:"address"`
	ExpiresIn string    `json:"expires_in"`
	LogLost   bool      `json:"log_lost,omitempty"`

	silent   bool
	unlogged bool // the log is lost, or its term has not begun: what it reports decides
}

// left ends "holds the lease".
func (l *Leader) left() string {
	if l.ExpiresIn == "" {
		return ", which never ends,"
	}
	return " for " + l.ExpiresIn + " more"
}

func (l *Leader) begun() bool { return l.Epoch > 0 || l.LogLost }

// glances are of the partitions that answer, at least one.
func (s *Status) glances() []glance {
	if len(s.parts) > 0 {
		return s.parts
	}
	return []glance{{now: s.Now, leader: s.Leader, hold: s.Hold, witness: s.Witness, heard: s.Heard, damaged: s.Damaged}}
}

// Instance is a running replica, or one that left something.
type Instance struct {
	ID        string    `json:"id"`
	Devices   int64     `json:"devices"`
	Alive     bool      `json:"alive"`
	LastBeat  time.Time `json:"last_beat,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	ExpiresIn string    `json:"expires_in"`
	TTL       string    `json:"ttl"`
	Interval  string    `json:"interval"`
	Program   string    `json:"program,omitempty"`
	Version   string    `json:"version"`
	Address   string    `json:"address"`
	BadIndex  bool      `json:"bad_index,omitempty"`
	// Old is a plain writer, without boot token or not on the roster, which heals nothing.
	Old bool `json:"old,omitempty"`
	// Differs describes settings unlike the fleet's, or the partitions without heartbeat.
	Differs  string     `json:"differs,omitempty"`
	SilentIn []int      `json:"silent_in,omitempty"`
	Doubt    *suspicion `json:"doubt,omitempty"` // why its entries are kept although it is silent
	Knows    Knows      `json:"knows,omitzero"`

	beat          beating // the first
	life          float64
	left          int64         // entries that name it; negative: not counted
	ttl, interval time.Duration // 0: not known
}

// Life is the share of the heartbeat's life that is left, 0 to 1; 0 also if unknown.
func (i Instance) Life() float64 { return i.life }

// Late reports whether a living instance has missed a beat, due after an interval, or, if that is
// unknown, a third of its TTL. Nobody is late while Redis is full: beats then keep heartbeats alive
// without a new time.
func (s *Status) Late(i Instance) bool {
	interval, err := time.ParseDuration(i.Interval)
	if err != nil {
		ttl, _ := time.ParseDuration(i.TTL)
		interval = ttl / 3
	}
	return i.Alive && interval > 0 && !i.LastBeat.IsZero() && s.Now.Sub(i.LastBeat) > interval*3/2 &&
		!s.full() && s.refused() == nil
}

// Remarks are how an instance differs from others. They do not repeat that it is dead or late.
func (s *Status) Remarks(i Instance) (all []string) {
	add := func(is bool, text string) {
		if is {
			all = append(all, text)
		}
	}
	led := s.Leads(i.ID)
	add(led != "", led)
	add(i.Differs != "", i.Differs)
	add(i.Old, "plain writer: not healed")
	if i.Doubt != nil {
		add(true, "doubted: "+i.Doubt.Reason)
	}
	add(i.BadIndex, "its index is no set")
	k := i.Knows
	add(k.Refused != "" || len(k.Failing)+len(k.Files) > 0, "has trouble, see above")
	return all
}

// Server is from INFO; empty: not reported.
type Server struct {
	Version   string `json:"version"`
	Role      string `json:"role"`
	Policy    string `json:"maxmemory_policy"`
	MaxMemory int64  `json:"maxmemory"`
	Memory    int64  `json:"used_memory"`
	Clients   int64  `json:"clients"`

	info map[string]string
	at   redis.UniversalClient
	of   []int // partitions
}

// Status costs a few round trips, and one per thousand instances, in each partition. Of several,
// the heartbeats of as many are read as fit into mostBeats.
func (r *Reader) Status(ctx context.Context) (Status, error) { return r.Watch().Status(ctx) }

func (r *Reader) leader(ctx context.Context, now time.Time) (*Leader, error) {
	h, held, err := lease.ReadHolder(ctx, r.client, r.keys.Lease())
	if err != nil || !held {
		return nil, err
	}
	beats, err := r.client.Exists(ctx, r.keys.Heartbeat(h.Instance)).Result()
	if err != nil {
		return nil, fmt.Errorf("inspect: heartbeat of the leader: %w", err)
	}
	l := &Leader{Instance: h.Instance, silent: beats == 0}
	if h.TTL >= 0 {
		l.ExpiresIn = span(h.TTL)
	}
	if l.Epoch, l.unlogged, err = r.begunEpoch(ctx, h, now); err != nil {
		return nil, err
	}
	l.Since = began(l.Epoch, now)
	return l, nil
}

// begunEpoch returns 0 if the holder's term has not begun: a term begins with a record of the log.
// The stored epoch, which may be the next term's, or overwritten, counts without any log.
func (r *Reader) begunEpoch(
	ctx context.Context, h lease.Holder, now time.Time,
) (epoch uint64, unlogged bool, err error) {
	newest, err := r.page(ctx, 1, "XREVRANGE", "+", "-", now)
	if err != nil || len(newest) == 0 {
		return h.Epoch, true, err
	}
	epoch = epochOf(newest[0].ID)
	first := strconv.FormatUint(epoch, 10) + "-0"
	opened, err := r.page(ctx, 1, "XRANGE", first, first, now)
	if err != nil {
		return 0, false, err
	}
	begun := len(opened) == 0 && newest[0].Leader == h.Instance // it was trimmed
	if len(opened) > 0 {
		begun = opened[0].Term == h.Token
	}
	if !begun {
		epoch = 0
	}
	return epoch, false, nil
}

// report decides about a leader without a log: one that describes itself reports passes of its
// term. Of others, a drawn epoch and a heartbeat count: the log is empty only until a first term
// has begun, within milliseconds.
func (l *Leader) report(about About, describes, present bool, now time.Time) {
	drawn := l.Epoch
	if l.silent || describes {
		l.Epoch = 0
	}
	for _, p := range about.Passes {
		if describes && present && !l.silent && (p.Epoch == drawn || drawn == 0) {
			l.Epoch = max(l.Epoch, p.Epoch)
		}
	}
	l.LogLost, l.Since = l.Epoch > 0, began(l.Epoch, now)
}

// countUpTo bounds the entries that Status reads to count owners without an index or roster entry.
const countUpTo = 10 * pageSize

// settle prefers the majority's settings: the last to tick may be the odd one out.
func (w *Witness) settle(instances []Instance) {
	var ttls, intervals []time.Duration
	for _, in := range instances {
		if in.ttl > 0 {
			ttls = append(ttls, in.ttl)
		}
		if in.interval > 0 {
			intervals = append(intervals, in.interval)
		}
	}
	if ttl := most(ttls); ttl > 0 && !near(ttl, w.TTL) {
		w.TTL = ttl
	}
	if interval := most(intervals); interval > 0 {
		w.Interval = interval
	}
}

// most returns what more than half, and at least two, share, or 0.
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

// near allows for the precision of a heartbeat's TTL.
func near(got, want time.Duration) bool { return (got - want).Abs() <= want/20 }

type sampled struct {
	counted    map[string]int // by owner
	unreadable []string       // up to mostUnreadable
	whole      bool
}

const mostUnreadable = 20

// mostInstanceID is the longest that a leader takes for one.
const mostInstanceID = 256

func judgeable(owner string) bool {
	return owner != "" && len(owner) <= mostInstanceID && utf8.ValidString(owner) &&
		!strings.ContainsFunc(owner, unicode.IsControl)
}

func (r *Reader) sample(ctx context.Context, upTo int) (sampled, error) {
	s := sampled{counted: map[string]int{}, whole: true}
	seen := map[string]bool{} // a scan may repeat entries
	for page, err := range guard.Fields(ctx, r.client, r.keys.Registry(), guard.Paging{}) {
		if Refused(err) || wrongType(err) { // a right that doctor names, or damage; the rest is still of use
			s.whole = wrongType(err)
			return s, nil
		}
		if err != nil {
			return sampled{}, fmt.Errorf("inspect: scan the registry: %w", err)
		}
		for pair := range slices.Chunk(page.Items, 2) {
			switch {
			case seen[pair[0]]:
			case judgeable(pair[1]):
				s.counted[pair[1]]++
			case len(s.unreadable) < mostUnreadable:
				s.unreadable = append(s.unreadable, pair[0])
			}
			seen[pair[0]] = true
		}
		if s.whole = page.Next == 0 || len(seen) < upTo; !s.whole {
			break
		}
	}
	return s, nil
}

// servers are those of the parts, each once.
func servers(ctx context.Context, parts []*Reader) (all []Server, err error) {
	for _, part := range parts {
		at, err := part.at(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(s Server) bool { return s.at == at })
		if i < 0 {
			s, err := server(ctx, at)
			if err != nil {
				return nil, err
			}
			i, all = len(all), append(all, s)
		}
		all[i].of = append(all[i].of, part.number)
	}
	return all, nil
}

func server(ctx context.Context, at redis.UniversalClient) (Server, error) {
	text, err := at.Info(ctx).Result()
	if err != nil && !Refused(err) {
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
		MaxMemory: num("maxmemory"), Memory: num("used_memory"), Clients: num("connected_clients"), info: info, at: at,
	}, nil
}

func (s Server) full() bool { return s.MaxMemory > 0 && s.Memory >= s.MaxMemory }

func (s Server) evicts() bool { return s.Policy != "" && s.Policy != "noeviction" }

// full is of any server of the keys.
func (s *Status) full() bool { return s.isFull(s.Redis) || slices.ContainsFunc(s.servers, s.isFull) }

// isFull also counts nearly full where ticks are refused: when INFO was read, a little less may
// have been used.
func (s *Status) isFull(r Server) bool {
	const nearly = 0.98
	near := r.MaxMemory > 0 && float64(r.Memory) >= nearly*float64(r.MaxMemory)
	return !r.evicts() && (r.full() || !s.Heard && near)
}

// describe adds what an instance has written of itself.
func (s *Status) describe(in *Instance, a About) {
	in.Program, in.Version, in.Address, in.Knows = a.Program, a.Version, a.Address, a.Knows
	if s.Leader != nil && s.Leader.Instance == in.ID {
		s.Leader.Address = a.Address
	}
	if of := s.Partitions; of != nil {
		if i := slices.IndexFunc(of.Leaders, func(l Leads) bool { return l.Instance == in.ID }); i >= 0 {
			of.Leaders[i].Address = a.Address
		}
	}
	if ttl, interval := a.times(); interval > 0 {
		in.Interval, in.TTL = span(interval), span(ttl)
	}
}

// differs returns how an instance differs from the fleet. When memory is full, heartbeats are only
// prolonged, and their value is old.
func (s *Status) differs(in Instance) string {
	ttl, interval := s.Witness.TTL.Round(100*time.Millisecond), s.Witness.Interval
	switch {
	case len(in.SilentIn) > 0:
		return silentIn + named(in.SilentIn)
	case in.ttl > 0 && ttl > 0 && !near(in.ttl, ttl) && !s.Redis.full():
		return "TTL " + Short(in.ttl) + ", fleet " + Short(ttl)
	case in.interval > 0 && interval > 0 && in.interval != interval:
		return "interval " + Short(in.interval) + ", fleet " + Short(interval)
	}
	return ""
}

// Unheld is how long nothing has been held.
func (s *Status) Unheld() time.Duration { return s.Witness.free(s.Now) }
