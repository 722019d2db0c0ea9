package inspect

import (
	"context"
	"fmt"
	"slices"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // works, and something is to be known or done; or it cannot be told
	Wrong   Level = "wrong"   // does not work, or not for long
)

// Check is one finding.
type Check struct {
	Name     string `json:"name"`
	Level    Level  `json:"level"`
	Sentence string `json:"sentence"` // to act on
}

// Diagnosis is what Doctor finds.
type Diagnosis struct {
	OK     bool    `json:"ok"` // nothing is wrong
	Checks []Check `json:"checks"`
}

// patient is what the checks look at. They are asked only while the server answers.
type patient struct {
	*Reader
	server Server
	status Status // of the fleet; of one partition what Status has of the first or the worst

	of      []int      // the partitions that it stands for
	master  string     // the address of their server, on a Redis Cluster
	fleet   *Reader    // of all partitions
	servers []*patient // of all partitions
}

// found is what a check found. A check that cannot tell returns an error.
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

// check is one of doctor's questions.
type check struct {
	name string
	ask  func(ctx context.Context, p *patient) (found, error)
}

// ofServer are asked of any Redis, also before there is a fleet.
var ofServer = []check{
	{"latency", checkLatency}, {"version", checkVersion}, {"cluster", checkCluster}, {"role", checkRole},
	{"policy", checkPolicy}, {"memory", checkMemory}, {"evicted_keys", checkEvictedKeys}, {"refused", checkRefused},
	{"persistence", checkPersistence}, {"clock", checkClock}, {"database", checkDatabase}, {"types", checkTypes},
}

// ofFleet are asked of a fleet.
var ofFleet = []check{
	{"leader", checkLeader}, {"lease", checkLease}, {"epoch", checkEpoch}, {"witness", checkWitness},
	{"hold", checkHold}, {"settings", checkSettings}, {"heartbeats", checkHeartbeats},
	{"old_writers", checkOldWriters}, {"index", checkIndex}, {"log", checkLog},
}

// Doctor looks whether this Redis is fit and the fleet is sound. It changes nothing. Its error says
// that the server does not answer: all else is a finding.
func (r *Reader) Doctor(ctx context.Context) (Diagnosis, error) {
	err := r.client.Ping(ctx).Err()
	if err != nil && !Refused(err) { // what is refused has a line of its own
		return Diagnosis{}, fmt.Errorf("inspect: ping: %w", err)
	}
	parts, err := r.parts(ctx)
	if err != nil {
		return Diagnosis{}, err
	}
	servers, err := masters(ctx, parts)
	if err != nil {
		return Diagnosis{}, err
	}
	d := Diagnosis{Checks: []Check{}}
	ask := func(patients []*patient, checks ...check) {
		for _, c := range checks {
			f := askEach(ctx, c, patients)
			d.Checks = append(d.Checks, Check{c.name, f.level, f.sentence})
		}
	}
	ask(servers, ofServer...)
	d.Checks = append(d.Checks, parts[0].rights(ctx)...)
	s := newSurvey(r, parts)
	s.server = servers[0].server
	p := &patient{Reader: parts[0], server: s.server, fleet: r, servers: servers}
	now, err := r.now(ctx)
	if err == nil {
		p.status, err = s.read(ctx, now, r.abouts)
	}
	if err != nil {
		d.Checks = append(d.Checks, Check{"fleet", Warning, "cannot be told: " + err.Error()})
	} else if p.noFleet() {
		d.Checks = append(d.Checks, Check{"fleet", OK, "there is none yet"})
	} else {
		by := s.patients(p.status, servers)
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
	}
	d.OK = !slices.ContainsFunc(d.Checks, func(c Check) bool { return c.Level == Wrong })
	return d, ctx.Err()
}

// noFleet: nobody has ever been here.
func (p *patient) noFleet() bool {
	s := p.status
	return s.Leader == nil && s.Witness.LastTick.IsZero() && len(s.Instances) == 0
}

// living are the ids of who lives.
func (p *patient) living() (ids []string) {
	for _, in := range p.status.Instances {
		if in.Alive {
			ids = append(ids, in.ID)
		}
	}
	return ids
}
