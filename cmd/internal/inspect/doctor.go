package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Level is the severity of a finding.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // works, but needs attention; or undecided
	Wrong   Level = "wrong"   // does not work, or will not for long
)

// Check is one finding.
type Check struct {
	Name     string `json:"name"`
	Level    Level  `json:"level"`
	Sentence string `json:"sentence"`
}

// Diagnosis is what Doctor found.
type Diagnosis struct {
	OK     bool    `json:"ok"`
	Checks []Check `json:"checks"`
}

// patient is the subject of a check. Checks run only while the server answers.
type patient struct {
	*Reader
	server Server
	status Status // for one partition, with its own leader, hold and witness

	expect int // living replicas; 0: not known
	of     []int
	master string // on a Redis Cluster: an address
	fleet  *Reader
	// The server of the fleet's own keys does not answer.
	fleetAway bool
	servers   []*patient
}

type found struct {
	level    Level
	sentence string
}

func fine(format string, args ...any) (found, error) {
	return found{OK, fmt.Sprintf(format, args...)}, nil
}
func warn(format string, args ...any) (found, error) {
	return found{Warning, fmt.Sprintf(format, args...)}, nil
}
func wrong(format string, args ...any) (found, error) {
	return found{Wrong, fmt.Sprintf(format, args...)}, nil
}

type check struct {
	name string
	ask  func(ctx context.Context, p *patient) (found, error)
}

var ofServer = []check{
	{"latency", checkLatency}, {"version", checkVersion}, {"cluster", checkCluster}, {"role", checkRole},
	{"policy", checkPolicy}, {"memory", checkMemory}, {"evicted_keys", checkEvictedKeys}, {"refused", checkRefused},
	{"persistence", checkPersistence}, {"clock", checkClock}, {"database", checkDatabase}, {"types", checkTypes},
}

var ofFleet = []check{
	{"leader", checkLeader}, {"lease", checkLease}, {"epoch", checkEpoch}, {"witness", checkWitness},
	{"hold", checkHold}, {"settings", checkSettings}, {"replicas", checkReplicas},
	{"heartbeats", checkHeartbeats}, {"losses", checkLosses},
	{"old_writers", checkOldWriters}, {"entries", checkEntries}, {"index", checkIndex}, {"log", checkLog},
	{"passes", checkPasses},
}

// Doctor checks whether this Redis is fit and the fleet is sound. It changes nothing, and only
// fails if the server does not answer: all else is a finding.
func (r *Reader) Doctor(ctx context.Context) (Diagnosis, error) { return r.DoctorOf(ctx, 0) }

// DoctorOf also checks the number of living replicas, unless expect is 0.
func (r *Reader) DoctorOf(ctx context.Context, expect int) (Diagnosis, error) {
	if _, cluster := r.client.(*redis.ClusterClient); !cluster { // any node of one would be asked
		if err := r.client.Ping(ctx).Err(); err != nil && !Refused(err) {
			return Diagnosis{}, fmt.Errorf("inspect: ping: %w", err) // a refused PING has its own line
		}
	}
	parts, to, err := r.reachParts(ctx)
	if err != nil {
		return Diagnosis{}, err
	}
	servers, err := masters(ctx, to.parts)
	if err != nil {
		return Diagnosis{}, err
	}
	for _, p := range servers {
		p.fleetAway = !to.fleet
	}
	d := Diagnosis{Checks: []Check{}}
	for _, u := range to.unread {
		d.Checks = append(d.Checks, Check{"server", Wrong, u.Sentence() + "; start it, or promote a replica of it"})
	}
	if len(parts) == 1 { // otherwise to.unread has them
		for _, text := range r.Away(ctx) {
			d.Checks = append(d.Checks, Check{"server", Wrong, text + "; start it, or promote a replica of it"})
		}
	}
	ask := func(patients []*patient, checks ...check) {
		for _, c := range checks {
			f := askEach(ctx, c, patients)
			d.Checks = append(d.Checks, Check{c.name, f.level, f.sentence})
		}
	}
	ask(servers, ofServer...)
	d.Checks = append(d.Checks, to.parts[0].rights(ctx)...)
	w := r.Watch()
	p := &patient{Reader: to.parts[0], server: servers[0].server, fleet: r, servers: servers, expect: expect}
	if p.status, err = w.Status(ctx); err != nil {
		d.Checks = append(d.Checks, Check{"fleet", Warning, "could not be checked: " + err.Error()})
	} else if p.noFleet() && expect == 0 {
		d.Checks = append(d.Checks, Check{"fleet", OK, "there is none yet"})
	} else {
		by := w.survey.patients(p.status, servers)
		if len(parts) > 1 {
			ask([]*patient{p}, ofPartitions...)
		}
		for _, c := range ofFleet {
			if slices.Contains(ofPartition, c.name) {
				ask(by, c)
			} else {
				ask([]*patient{p}, c)
			}
		}
		d.agree(p.status.Problems())
	}
	d.OK = !slices.ContainsFunc(d.Checks, func(c Check) bool { return c.Level == Wrong })
	return d, ctx.Err()
}

// checkOf names a problem's check, if that is another name.
var checkOf = map[string]string{
	"nobody_leads": "leader", "leader_silent": "leader", "term_not_begun": "leader", "lease_without_ttl": "lease",
	"log_lost": "log", "unheard": "witness", "cut": "roster", "silent": "heartbeats", "silent_in": "heartbeats",
	"differs": "settings", "pass_failed": "passes", "pass_held": "passes", "lost_lately": "losses",
	"damaged": "types", "unreadable": "entries", "unread": "server",
}

// agree makes no check milder than the page, which shows the problems of the same status.
func (d *Diagnosis) agree(problems []Problem) {
	severity := map[Level]int{OK: 0, Warning: 1, Wrong: 2}
	for _, p := range problems {
		name, _, _ := strings.Cut(p.Name, ":")
		if check, other := checkOf[name]; other {
			name = check
		}
		says := Check{name, p.Level, strings.TrimSpace(p.Sentence + " " + p.Do)}
		i := slices.IndexFunc(d.Checks, func(c Check) bool { return c.Name == name })
		switch {
		case i < 0:
			d.Checks = append(d.Checks, says)
		case d.Checks[i].Level == OK:
			d.Checks[i] = says
		case severity[d.Checks[i].Level] < severity[p.Level]:
			d.Checks[i].Level = p.Level
		case name == "passes": // a line each
			d.Checks = slices.Insert(d.Checks, i+1, says)
		}
	}
}

func (p *patient) noFleet() bool {
	s := p.status
	return s.Leader == nil && s.Witness.LastTick.IsZero() && len(s.Instances) == 0
}

// Empty reports whether this Redis has no trace of a fleet.
func (s Status) Empty() bool {
	return (&patient{status: s}).noFleet() && len(s.Damaged) == 0 && len(s.Unread) == 0
}

func (p *patient) living() (ids []string) {
	for _, in := range p.status.Instances {
		if in.Alive {
			ids = append(ids, in.ID)
		}
	}
	return ids
}
