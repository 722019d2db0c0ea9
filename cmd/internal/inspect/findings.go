package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

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
	Runbook  string `json:"runbook,omitempty"`    // page and heading, under /docs/ of each replica
	Of       []int  `json:"partitions,omitempty"` // of several

	stops bool // nothing is swept meanwhile
	quiet bool // for doctor alone
	cause string
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
	find    func(p *patient) []Finding
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
	refuses   = "redis.md#what-redis-may-refuse"
	noLeader  = "runbook.md#rollcallnobodyleads"
	overwrote = "runbook.md#a-key-that-somebody-overwrote"
)

// rules, by subject. Findings keep this order within a level.
var rules []rule

func init() { // some refer to others
	rules = []rule{
		{"server", "runbook.md#a-part-of-redis-does-not-answer", ofFleet, false, unreadServers},
		{"server", "runbook.md#a-part-of-redis-does-not-answer", ofFleet, true, awayServers},
		{"writes", refuses, ofPartition, false, refusedWrites},
		{"memory", "runbook.md#rollcallredisfull", ofServer, false, memory},
		{"failing", "runbook.md#rollcallheartbeatsfail", ofFleet, false, failing},
		{"rights", "redis.md#rights", ofFleet, true, rights},
		{"commands", refuses, ofServer, true, unknownCommands},
		{"clients", refuses, ofServer, false, clients},
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
	ctx    context.Context
	s      *Status
	g      glance // of the partition, or of the first that answers
	server Server
	of     []int

	expect int // living replicas; 0: not known
	fleet  *Reader
}

// patients returns those of each scope. parts are for rules that ask.
func (s *Status) patients(parts []*Reader, like patient) map[scope][]*patient {
	glances := s.glances()
	of := func(numbers []int, g glance, server Server) *patient {
		p := like
		p.s, p.g, p.server, p.of = s, g, server, numbers
		for _, part := range parts {
			if p.Reader == nil || slices.Contains(numbers, part.number) {
				p.Reader = part
			}
		}
		return &p
	}
	all := map[scope][]*patient{ofFleet: {of(nil, glances[0], s.Redis)}}
	for _, g := range glances {
		all[ofPartition] = append(all[ofPartition], of([]int{g.number}, g, s.Redis))
	}
	for _, server := range s.servers {
		all[ofServer] = append(all[ofServer], of(server.of, glances[0], server))
	}
	if len(s.servers) == 0 {
		all[ofServer] = all[ofFleet]
	}
	return all
}

func found(level Level, name, do, format string, args ...any) Finding {
	return Finding{Name: name, Level: level, Sentence: fmt.Sprintf(format, args...) + ".", Do: do}
}

func fine(format string, args ...any) []Finding {
	return []Finding{{Level: OK, Sentence: fmt.Sprintf(format, args...)}}
}

func warning(do, format string, args ...any) []Finding {
	return []Finding{found(Warning, "", do, format, args...)}
}

func wrong(do, format string, args ...any) []Finding {
	return []Finding{found(Wrong, "", do, format, args...)}
}

// failed is of a question that could not be asked.
func failed(err error) []Finding {
	text, do := explained(err)
	return warning(do, "This could not be looked at: %s", text)
}

// stopping marks findings as the reason why nothing is swept.
func stopping(all []Finding) []Finding {
	for i := range all {
		all[i].stops = true
	}
	return all
}

// quietly keeps findings for doctor.
func quietly(all []Finding) []Finding {
	all[0].quiet = true
	return all
}

// ask returns a rule's findings about all patients; of partitions or servers the worst, with its
// number.
func (r rule) ask(patients []*patient) []Finding {
	all := make([][]Finding, len(patients))
	look := func(i int) {
		all[i] = r.find(patients[i])
		for j := range all[i] {
			f := &all[i][j]
			f.Name = strings.TrimSuffix(r.name+":"+f.Name, ":")
			if f.Runbook = cmp.Or(f.Runbook, r.runbook); len(patients) > 1 {
				f.Of = patients[i].of
			}
		}
	}
	p := pool.New().WithMaxGoroutines(atOnce)
	for i := range patients {
		p.Go(func() { look(i) })
	}
	p.Wait()
	if len(patients) == 1 {
		return all[0]
	}
	return merged(slices.Concat(all...))
}

// merged keeps, of each name, the first of the worst level, with the partitions that have it.
func merged(all []Finding) (found []Finding) {
	for _, f := range all {
		i := slices.IndexFunc(found, func(o Finding) bool { return o.Name == f.Name })
		switch {
		case i < 0:
			found = append(found, f)
		case severity[f.Level] > severity[found[i].Level]:
			found[i] = f
		case f.Level == found[i].Level:
			found[i].Of = append(slices.Clone(found[i].Of), f.Of...)
		}
	}
	for i := range found {
		if f := &found[i]; f.Level != OK && len(f.Of) > 0 {
			slices.Sort(f.Of)
			f.Of = slices.Compact(f.Of)
			f.Sentence = upper(named(f.Of)) + ": " + f.Sentence
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
	of := s.patients(nil, patient{})
	for _, r := range rules {
		if !r.asks && (len(names) == 0 || slices.Contains(names, r.name)) {
			all = append(all, r.ask(of[r.of])...)
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

// Doctor looks whether this Redis is fit and the fleet is sound, also before there is a fleet, and
// whether as many replicas live as are expected (0: not known). It changes nothing, and only fails
// if the server does not answer: all else is a finding.
func (r *Reader) Doctor(ctx context.Context, expect int) (Diagnosis, error) {
	all, err := r.diagnose(ctx, expect)
	if answered(err) {
		all, err = []Finding{refusal("server", "", err)}, nil
	}
	wrong := slices.ContainsFunc(all, func(c Finding) bool { return c.Level == Wrong })
	return Diagnosis{OK: !wrong, Checks: sorted(all)}, err
}

// refusal is the finding of a Redis that refuses to be read.
func refusal(name, what string, err error) Finding {
	text, do := explained(err)
	f := found(Wrong, name, do, "%s", upper(what+text))
	f.Runbook = refuses
	return f
}

func (r *Reader) diagnose(ctx context.Context, expect int) (all []Finding, err error) {
	to, unread := r.reach(ctx)
	s := Status{}
	if unread == nil {
		s, unread = r.Watch().status(ctx, to)
	}
	switch {
	case unread == nil:
	case len(to.parts) == 0 || !answered(unread):
		return nil, unread
	default:
		if s.servers, err = servers(ctx, to.parts); err != nil {
			return nil, err
		}
	}
	of := s.patients(to.parts, patient{ctx: ctx, fleet: r, expect: expect})
	for _, rule := range rules {
		if unread == nil || rule.of == ofServer || rule.name == "rights" {
			all = append(all, rule.ask(of[rule.of])...)
		}
	}
	if unread != nil {
		all = append(all, refusal("fleet", "the fleet cannot be read: ", unread))
	}
	if s.noFleet() && expect == 0 { // then these are not missed
		all = slices.DeleteFunc(all, func(f Finding) bool { return f.Name == "leader" || f.Name == "witness" || f.Name == "replicas" })
	}
	return all, ctx.Err()
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

func list(ids []string, one, more string) string { return few(ids) + " " + its(ids, one, more) }

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
