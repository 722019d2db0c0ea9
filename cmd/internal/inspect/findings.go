package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
)

// Level is the severity of a finding.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // works, but needs attention; or undecided
	Wrong   Level = "wrong"   // does not work, or will not for long
)

// Finding is something that is true of a fleet, in a sentence, with what to do about it. Page, tool
// and JSON show the same.
type Finding struct {
	// Name is fixed while it is true; the sentence may count down.
	Name     string `json:"name"`
	Level    Level  `json:"level"`
	Sentence string `json:"sentence"`
	Do       string `json:"do,omitempty"`
	Runbook  string `json:"runbook,omitempty"` // page and heading, under /docs/ of each replica

	stops bool // nothing is swept meanwhile
	quiet bool // for doctor alone
	cause string
	of    []int
}

// Text is the sentence with what to do.
func (f Finding) Text() string { return strings.TrimSpace(f.Sentence + " " + f.Do) }

// Diagnosis is what Doctor found.
type Diagnosis struct {
	OK     bool      `json:"ok"`
	Checks []Finding `json:"checks"`
}

// A rule is a row of the table. No other place has sentences about a fleet.
type rule struct {
	name    string
	runbook string // unless the finding has its own
	of      scope
	asks    bool // Redis, and is not for the page, which has only what a status has
	find    func(ctx context.Context, p *patient) ([]Finding, error)
}

// scope is what a rule looks at.
type scope int

const (
	ofFleet     scope = iota // once
	ofPartition              // each that answers
	ofServer                 // each that answers
)

const (
	redisPage = "redis.md"
	noLeader  = "runbook.md#rollcallnobodyleads"
	overwrote = "runbook.md#a-key-that-somebody-overwrote"
)

// rules, by subject. Findings keep this order within a level.
var rules []rule

func init() { // some refer to others
	rules = []rule{
		{"server", "runbook.md#a-part-of-redis-does-not-answer", ofFleet, false, unreadServers},
		{"server", "runbook.md#a-part-of-redis-does-not-answer", ofFleet, true, awayServers},
		{"writes", "redis.md#what-redis-may-refuse", ofPartition, false, refusedWrites},
		{"memory", "runbook.md#rollcallredisfull", ofServer, false, memory},
		{"failing", "runbook.md#rollcallheartbeatsfail", ofFleet, false, failing},
		{"rights", "redis.md#rights", ofFleet, true, rights},
		{"commands", "redis.md#what-redis-may-refuse", ofServer, true, unknownCommands},
		{"clients", "redis.md#what-redis-may-refuse", ofServer, false, clients},
		{"latency", redisPage, ofServer, true, latency},
		{"version", redisPage, ofServer, false, version},
		{"cluster", redisPage, ofServer, true, cluster},
		{"role", redisPage, ofServer, false, role},
		{"policy", redisPage, ofServer, false, policy},
		{"evicted_keys", "runbook.md#redis_evicting", ofServer, true, evictedKeys},
		{"refused", "runbook.md#refused", ofServer, true, turnedAway},
		{"persistence", redisPage, ofServer, true, persistence},
		{"clock", redisPage, ofServer, true, clock},
		{"database", "runbook.md#rollcalltwoleaders", ofServer, true, database},
		{"types", overwrote, ofPartition, false, damage},
		{"fleet", "", ofFleet, true, otherFleets},
		{"partitions", overwrote, ofFleet, false, overwritten},
		{"partitions", "", ofFleet, true, divided},
		{"masters", "", ofFleet, true, uneven},
		{"size", "", ofFleet, true, large},
		{"leader", noLeader, ofPartition, false, leads},
		{"lease", noLeader, ofPartition, false, leaseEnds},
		{"epoch", overwrote, ofPartition, true, epochAhead},
		{"paused", "runbook.md#paused", ofFleet, false, paused},
		{"hold", "", ofPartition, false, held},
		{"witness", "runbook.md#rollcallnotsweeping", ofPartition, false, listens},
		{"dry_run", "runbook.md#rollcalldryrun", ofFleet, false, dryRun},
		{"programs", "runbook.md#settings", ofFleet, false, programs},
		{"settings", "runbook.md#settings", ofFleet, false, settings},
		{"replicas", "runbook.md#rollcallshrank", ofFleet, false, replicas},
		{"heartbeats", "runbook.md#rollcallownerdied", ofFleet, false, heartbeats},
		{"losses", "runbook.md#rollcallownerdied", ofFleet, false, lost},
		{"doubts", "", ofFleet, false, doubted},
		{"old_writers", "protocol.md", ofFleet, false, oldWriters},
		{"roster", overwrote, ofFleet, false, rosterCut},
		{"entries", "runbook.md#unreadable", ofFleet, false, entries},
		{"index", overwrote, ofPartition, true, indexes},
		{"log", "runbook.md#the-eviction-log-is-lost", ofPartition, false, logLost},
		{"log", "", ofPartition, true, logSize},
		{"cleanup", "runbook.md#cleanupremovesmuch", ofFleet, false, tookMost},
		{"passes", "runbook.md#rollcallpassesfail", ofFleet, false, passes},
	}
}

// patient is what a rule looks at. Without a Reader nothing may be asked.
type patient struct {
	*Reader
	s      *Status
	g      glance // of the partition, or of the first that answers
	server Server

	expect  int // living replicas; 0: not known
	of      []int
	master  string // on a Redis Cluster: an address
	fleet   *Reader
	servers []*patient
	// The server of the fleet's own keys does not answer.
	fleetAway bool
}

func fine(format string, args ...any) ([]Finding, error) {
	return []Finding{{Level: OK, Sentence: fmt.Sprintf(format, args...)}}, nil
}

func warning(do, format string, args ...any) ([]Finding, error) {
	return []Finding{{Level: Warning, Sentence: fmt.Sprintf(format, args...) + ".", Do: do}}, nil
}

func wrong(do, format string, args ...any) ([]Finding, error) {
	return []Finding{{Level: Wrong, Sentence: fmt.Sprintf(format, args...) + ".", Do: do}}, nil
}

// stopping marks findings as the reason why nothing is swept.
func stopping(found []Finding, err error) ([]Finding, error) {
	for i := range found {
		found[i].stops = true
	}
	return found, err
}

// ask returns a rule's findings about all patients; of partitions or servers the worst, with its
// number. A question that fails is a warning.
func (r rule) ask(ctx context.Context, patients []*patient) []Finding {
	all := make([][]Finding, len(patients))
	look := func(i int) {
		found, err := r.find(ctx, patients[i])
		if err != nil {
			text, do := explained(err)
			found = []Finding{{Level: Warning, Sentence: "This could not be looked at: " + text + ".", Do: do}}
		}
		for j := range found {
			f := &found[j]
			if f.Name = strings.TrimPrefix(r.name+":"+f.Name, ":"); strings.HasSuffix(f.Name, ":") {
				f.Name = r.name
			}
			f.Runbook, f.of = cmp.Or(f.Runbook, r.runbook), patients[i].of
		}
		all[i] = found
	}
	p := pool.New().WithMaxGoroutines(atOnce)
	for i := range patients {
		if r.asks {
			p.Go(func() { look(i) })
		} else {
			look(i)
		}
	}
	p.Wait()
	if len(patients) == 1 {
		return all[0]
	}
	return merged(all, r.of)
}

// merged keeps, of each name, the first of the worst level, with the partitions that have it.
func merged(all [][]Finding, of scope) (found []Finding) {
	for _, f := range slices.Concat(all...) {
		i := slices.IndexFunc(found, func(o Finding) bool { return o.Name == f.Name })
		switch {
		case i < 0:
			found = append(found, f)
		case severity[f.Level] > severity[found[i].Level]:
			found[i] = f
		case f.Level == found[i].Level:
			found[i].of = append(slices.Clone(found[i].of), f.of...)
		}
	}
	for i := range found {
		if f := &found[i]; f.Level != OK && len(f.of) > 0 {
			slices.Sort(f.of)
			f.Sentence = upper(named(slices.Compact(f.of))) + ": " + f.Sentence
		}
	}
	return found
}

var severity = map[Level]int{OK: 0, Warning: 1, Wrong: 2}

// sorted has the worst first. Of a name that is not only fine, it leaves out that it is.
func sorted(all []Finding) []Finding {
	bad := map[string]bool{}
	for _, f := range all {
		name, _, _ := strings.Cut(f.Name, ":")
		bad[name] = bad[name] || f.Level != OK
	}
	found := []Finding{}
	for i, f := range all {
		name, _, _ := strings.Cut(f.Name, ":")
		if f.Level == OK && (bad[name] || slices.ContainsFunc(all[i+1:], func(o Finding) bool { return o.Name == f.Name })) {
			continue
		}
		found = append(found, f)
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return severity[b.Level] - severity[a.Level] })
	return found
}

// Findings returns what is not well, the worst first. It asks nobody.
func (s *Status) Findings() []Finding {
	return slices.DeleteFunc(sorted(s.findings()), func(f Finding) bool { return f.Level == OK })
}

// findings are those of these rules; none: of all.
func (s *Status) findings(names ...string) (all []Finding) {
	whole := &patient{s: s, g: s.glances()[0], server: s.Redis}
	parts := []*patient{}
	for _, g := range s.glances() {
		parts = append(parts, &patient{s: s, g: g, server: s.Redis, of: []int{g.number}})
	}
	for _, r := range rules {
		switch {
		case r.asks || len(names) > 0 && !slices.Contains(names, r.name):
		case r.of == ofPartition:
			all = append(all, r.ask(context.Background(), parts)...)
		default:
			all = append(all, r.ask(context.Background(), []*patient{whole})...)
		}
	}
	return slices.DeleteFunc(all, func(f Finding) bool { return f.quiet })
}

// Stopped returns why nothing is swept, or nil. Its sentence promises an end only if time alone
// brings it.
func (s *Status) Stopped() *Finding {
	for _, f := range sorted(s.findings("writes", "memory", "leader", "paused", "hold", "witness", "dry_run", "passes")) {
		if f.stops {
			return &f
		}
	}
	return nil
}

// Doctor looks whether this Redis is fit and the fleet is sound, also before there is a fleet. It
// changes nothing, and only fails if the server does not answer: all else is a finding.
func (r *Reader) Doctor(ctx context.Context) (Diagnosis, error) { return r.DoctorOf(ctx, 0) }

// DoctorOf also checks the number of living replicas, unless expect is 0.
func (r *Reader) DoctorOf(ctx context.Context, expect int) (Diagnosis, error) {
	d, err := r.diagnose(ctx, expect)
	if answered(err) {
		text, do := explained(err)
		f := Finding{Name: "server", Level: Wrong, Sentence: upper(text) + ".", Do: do, Runbook: "redis.md#what-redis-may-refuse"}
		d, err = Diagnosis{Checks: []Finding{f}}, nil
	}
	d.OK = !slices.ContainsFunc(d.Checks, func(c Finding) bool { return c.Level == Wrong })
	return d, err
}

func (r *Reader) diagnose(ctx context.Context, expect int) (Diagnosis, error) {
	if _, cluster := r.client.(*redis.ClusterClient); !cluster { // any node of one would be asked
		if err := r.client.Ping(ctx).Err(); err != nil && !answered(err) {
			return Diagnosis{}, fmt.Errorf("inspect: ping: %w", err)
		}
	}
	_, to, err := r.reachParts(ctx)
	if err != nil {
		return Diagnosis{}, err
	}
	servers, err := masters(ctx, to.parts)
	if err != nil {
		return Diagnosis{}, err
	}
	w := r.Watch()
	s, unread := w.Status(ctx)
	if unread != nil && !answered(unread) {
		return Diagnosis{}, unread
	}
	whole := &patient{Reader: to.parts[0], s: &s, g: s.glances()[0], server: servers[0].server, fleet: r,
		servers: servers, expect: expect, fleetAway: !to.fleet}
	parts := []*patient{}
	for _, g := range s.glances() {
		part := to.parts[0]
		if i := slices.IndexFunc(to.parts, func(p *Reader) bool { return p.number == g.number }); i >= 0 {
			part = to.parts[i]
		}
		one := *whole
		one.Reader, one.g, one.of = part, g, []int{g.number}
		parts = append(parts, &one)
	}
	for _, p := range servers {
		p.s, p.g, p.fleetAway, p.fleet = &s, whole.g, !to.fleet, r
	}
	var all []Finding
	for _, rule := range rules {
		if unread != nil && rule.of != ofServer && rule.name != "rights" {
			continue
		}
		all = append(all, rule.ask(ctx, map[scope][]*patient{
			ofFleet: {whole}, ofPartition: parts, ofServer: servers}[rule.of])...)
	}
	if unread != nil {
		text, do := explained(unread)
		all = append(all, Finding{Name: "fleet", Level: Wrong, Sentence: "The fleet cannot be read: " + text + ".", Do: do,
			Runbook: "redis.md#what-redis-may-refuse"})
	}
	if s.noFleet() && expect == 0 { // then these are not missed
		all = slices.DeleteFunc(all, func(f Finding) bool { return f.Name == "leader" || f.Name == "witness" || f.Name == "replicas" })
	}
	return Diagnosis{Checks: sorted(all)}, ctx.Err()
}

func (s *Status) noFleet() bool {
	return s.Leader == nil && s.Witness.LastTick.IsZero() && len(s.Instances) == 0 && s.refused() == nil
}

// Empty reports whether this Redis has no trace of a fleet.
func (s *Status) Empty() bool {
	return s.noFleet() && len(s.Damaged) == 0 && len(s.Unread) == 0
}

func (s *Status) refused() error {
	for _, g := range s.glances() {
		if g.refused != nil {
			return g.refused
		}
	}
	return nil
}

func (s *Status) living() (ids []string) {
	for _, in := range s.Instances {
		if in.Alive {
			ids = append(ids, in.ID)
		}
	}
	return ids
}

func upper(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func list(ids []string, one, more string) string {
	const named = 3
	switch {
	case len(ids) == 1:
		return ids[0] + " " + one
	case len(ids) <= named:
		return strings.Join(ids[:len(ids)-1], ", ") + " and " + ids[len(ids)-1] + " " + more
	}
	return fmt.Sprintf("%d instances %s (%s, …)", len(ids), more, strings.Join(ids[:named], ", "))
}

func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// brief keeps the end of a chain of errors, where the cause is.
func brief(text string) string {
	const most = 120
	for len(text) > most {
		_, rest, more := strings.Cut(text, ": ")
		if !more {
			break
		}
		text = rest
	}
	return strings.TrimRight(text, ".")
}

func one(n int64, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
