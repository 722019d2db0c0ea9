package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/janitor"
)

// About is a replica's description of itself, under guard.Layout.About. Missing fields are unknown:
// programs of other versions may write others.
type About struct {
	Boot     string             `json:"boot"`
	Program  string             `json:"program"`
	Version  string             `json:"version"`
	Address  string             `json:"address"`
	Interval string             `json:"interval"`
	TTL      string             `json:"ttl"`
	Passes   []janitor.Report   `json:"passes,omitempty"`
	UnderWay []janitor.Progress `json:"under_way,omitempty"`
	Knows
}

// Knows is what a replica knows of itself, and no key of the fleet shows.
type Knows struct {
	NotReady string               `json:"not_ready,omitempty"`
	Refused  string               `json:"refused,omitempty"` // why Redis does not take it
	Failing  map[string]string    `json:"failing,omitempty"` // operations, and their errors
	Files    map[string]string    `json:"files,omitempty"`   // settings whose file cannot be used
	Ends     map[string]time.Time `json:"ends,omitempty"`    // certificates
	Lacks    []string             `json:"lacks,omitempty"`   // rights
	Warnings []string             `json:"warnings,omitempty"`
	Sockets  int                  `json:"sockets,omitempty"`
	DryRun   bool                 `json:"dry_run,omitempty"`
	// NobodyAllowed means that a set of allowed devices is asked for, and is empty.
	NobodyAllowed bool `json:"nobody_allowed,omitempty"`
	// Untold are rules that cannot judge most of their candidates: how many, and of how many.
	Untold map[string][2]int `json:"untold,omitempty"`
}

// Same ignores what changes all the time.
func (k Knows) Same(as Knows) bool {
	k.Sockets = as.Sockets
	return reflect.DeepEqual(k, as)
}

// Learn returns the status with what one of its instances knows now.
func (s Status) Learn(id string, k Knows) Status {
	s.Instances = slices.Clone(s.Instances)
	for i := range s.Instances {
		if in := &s.Instances[i]; in.ID == id {
			in.Knows = k
			s.denied(k)
			return s
		}
	}
	s.own = Instance{ID: id, Alive: true, Knows: k}
	s.denied(k)
	return s
}

// denied has a replica's own word why nobody listens to Redis: whoever asks may be allowed more.
func (s *Status) denied(k Knows) {
	said := cmp.Or(k.Failing["heartbeat"], k.Refused)
	if said == "" || len(s.living()) > 0 {
		return
	}
	s.parts = slices.Clone(s.parts)
	for i := range s.parts {
		if g := &s.parts[i]; !g.heard && g.refused == nil {
			g.refused = errors.New(said)
		}
	}
}

// Findings are those of a replica alone, which got err from Redis, or nil.
func (k Knows) Findings(id string, now time.Time, err error) []Finding {
	s := Status{Now: now, own: Instance{ID: id, Alive: true, Knows: k},
		parts: []glance{{now: now, refused: err}}}
	return sorted(s.findings("failing"))
}

// soonExpired is when a certificate becomes a finding.
const soonExpired = 14 * 24 * time.Hour

func (k Knows) findings(now time.Time) (all []Finding) {
	add := func(name string, level Level, runbook, do, format string, args ...any) {
		f := found(level, name, do, format, args...)
		f.Runbook = runbook
		all = append(all, f)
	}
	fails := maps.Clone(k.Failing)
	if k.Refused != "" && fails["heartbeat"] == "" {
		fails = map[string]string{"heartbeat": k.Refused}
	} else if k.Refused == "" && k.NotReady != "" {
		add("not_ready", Warning, "operate.md#a-replica-does-not-become-ready", "", "not ready: %s", brief(k.NotReady))
	}
	by := map[string][]string{}
	for _, op := range slices.Sorted(maps.Keys(fails)) {
		text, _ := explained(errors.New(fails[op]))
		by[text] = append(by[text], op)
	}
	for _, text := range slices.Sorted(maps.Keys(by)) {
		ops, said := by[text], errors.New(fails[by[text][0]])
		_, do := explained(said)
		add(ops[0], Wrong, "", do, "%s: %s", few(ops)+its(ops, " fails", " fail"), text)
		all[len(all)-1].cause, _ = Cause(said)
	}
	for _, name := range slices.Sorted(maps.Keys(k.Files)) {
		add("file:"+name, Warning, "runbook.md#rollcallfilefailing", "Put the right value into the file.",
			"the file of %s cannot be used: %s", name, brief(k.Files[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(k.Ends)) {
		const runbook, do = "runbook.md#rollcallcertificateends", "Put a new certificate into the file."
		switch left := k.Ends[name].Sub(now); {
		case left <= 0:
			add("certificate:"+name, Wrong, runbook, do, "the certificate of %s expired %s", name, Ago(-left))
		case left < soonExpired:
			add("certificate:"+name, Warning, runbook, do, "the certificate of %s expires in %s", name, Short(left))
		}
	}
	if k.NobodyAllowed {
		add("allowed", Wrong, "runbook.md#rollcallshrank", "Fill the set: redis-cli SADD devices:allowed IMEI.",
			"DEVICE_AUTHORITY is set, and the set devices:allowed is empty: no device is served")
	}
	if len(k.Lacks) > 0 {
		add("rights", Wrong, "redis.md#rights", "rollcall doctor, with the replica's own user, says how to allow it.",
			"its user may not %s", strings.Join(k.Lacks[:min(len(k.Lacks), 5)], "; "))
	}
	for _, rule := range slices.Sorted(maps.Keys(k.Untold)) {
		add("rule:"+rule, Warning, "runbook.md#why-a-rule-is-held",
			"A right may be missing: cleanup why KEY, with the replica's own user, names what has no answer.",
			"the rule %s keeps %d of its %d candidates because a sign has no answer", rule,
			k.Untold[rule][0], k.Untold[rule][1])
	}
	for _, text := range k.Warnings {
		add(text, Warning, redisPage, "", "%s", text)
	}
	return all
}

// of reports whether the life that wrote heartbeat h may have written a: an older program with the
// same id writes none, and must not get a newer one's.
func (a About) of(h beating) bool {
	return !h.Alive || !h.Boot.IsZero() && bootTime(a.Boot).Equal(h.Boot)
}

// times are 0 if unknown.
func (a About) times() (ttl, interval time.Duration) {
	interval, _ = time.ParseDuration(a.Interval)
	ttl, _ = time.ParseDuration(a.TTL)
	return ttl, interval
}

// settings prefers a description to a heartbeat, which is less exact on a slow network; 0: unknown.
func (h beating) settings(now time.Time, a About) (ttl, interval time.Duration) {
	ttl = h.ttl(now)
	if !h.Alive || ttl <= 0 || !a.of(h) {
		return ttl, 0
	}
	said, interval := a.times()
	return cmp.Or(said, ttl), interval
}

const longestAbout = 16 << 10

// mostAbouts bounds the bytes of one reading. Real ones have less than 1 KiB, a leader's a few.
const mostAbouts = 1 << 20

const aboutPage = 100

// reachable are the forms of an address at which somebody may be asked: host and port, no more.
var (
	reachable   = regexp.MustCompile(`(?i)^(\[[0-9a-f:.]+\]|[a-z0-9_.-]{1,253}):\d{1,5}$`)
	unspecified = regexp.MustCompile(`^(\[::\]|0\.0\.0\.0):`)
)

// hostAndPort returns "" for all else: anybody who writes to Redis may have written it.
func hostAndPort(address string) string {
	if !reachable.MatchString(address) || unspecified.MatchString(address) {
		return ""
	}
	return address
}

// Abouts leaves out missing and invalid descriptions, and all if this user may not read them. Of
// many it reads only the first.
func (r *Reader) Abouts(ctx context.Context, ids []string) (map[string]About, error) {
	all := make(map[string]About, len(ids))
	bytes := 0
	for page := range slices.Chunk(ids, aboutPage) {
		if bytes >= mostAbouts {
			break
		}
		p := r.client.Pipeline()
		said := make([]*redis.StringCmd, len(page))
		for i, id := range page {
			said[i] = beginning(ctx, p, r.keys.About(id), longestAbout)
		}
		err := exec(ctx, p, "the replicas' descriptions")
		if Refused(err) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		for i, id := range page {
			text := said[i].Val()
			var a About
			bytes += len(text)
			if len(text) <= longestAbout && json.NewDecoder(strings.NewReader(text)).Decode(&a) == nil {
				a.Program, a.Version = printable.Clip(a.Program), printable.Clip(a.Version)
				a.Address = hostAndPort(a.Address)
				all[id] = a
			}
		}
	}
	return all, nil
}
