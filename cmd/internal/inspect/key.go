package inspect

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
)

func isDevice(id string) bool { return len(id) == 15 && strings.Trim(id, "0123456789") == "" }

// whyKey answers for a key, a member of one (key, space, member), or a worker's id. Without a
// verdict it does not exist, and only the log can explain that.
func (r *Reader) whyKey(ctx context.Context, w *Why, stopped *Finding, now time.Time) (Verdict, string, error) {
	passes, err := orphan.ReadPasses(ctx, r.client, r.keys)
	if err == nil && len(passes) > 0 {
		w.Marks, err = orphan.ReadMarks(ctx, r.client, r.keys, w.ID)
	}
	if err != nil && !Refused(err) {
		return "", "", err
	}
	if len(w.Marks) > 0 {
		verdict, text := marked(w.Marks[0], passes[w.Marks[0].Rule], stopped, now)
		return verdict, text, nil
	}
	if text, err := r.mirrored(ctx, w.ID, now); err != nil || text != "" {
		if len(w.Records) > 0 && text != "" {
			text += "; last found silent " + Ago(now.Sub(w.Records[0].At))
		}
		return Kept, text, err
	}
	kind, err := r.client.Type(ctx, w.ID).Result()
	if err != nil && !Refused(err) { // this user may be limited to the registry's keys
		return "", "", fmt.Errorf("inspect: type of the key: %w", err)
	}
	if err == nil && kind != "none" {
		text := "kept: the key is there, a " + kind
		if len(w.Records) > 0 && w.Records[0].Count > 0 {
			text += fmt.Sprintf(", again: the rule %s took it %s, and it was restored or made anew since",
				w.Records[0].Sweep, Ago(now.Sub(w.Records[0].At)))
		}
		if len(passes) > 0 {
			text += "; no rule has found it an orphan. cleanup why KEY shows each sign of life"
		}
		return Kept, text, nil
	}
	if len(passes) == 0 {
		return "", "", nil
	}
	bins, err := orphan.Bins{Client: r.client, Layout: r.keys}.List(ctx, "")
	if err != nil && !Refused(err) {
		return "", "", err
	}
	for _, b := range bins { // the newest wins
		if b.Key == w.ID && b.Member == "" || b.Key+" "+b.Member == w.ID {
			w.Bin = &b
		}
	}
	if w.Bin == nil || len(w.Records) > 0 {
		return "", "", nil
	}
	// Together with the one in the record.
	return Evicted, fmt.Sprintf("evicted %s with %s: the rule %s found that an orphan%s",
		Ago(now.Sub(w.Bin.Removed)), w.Bin.Name, w.Bin.Rule, binned(w.Bin, now)), nil
}

func binned(b *orphan.Binned, now time.Time) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf("; it is in the bin until %s, for %s more: rollcall restore %s puts it back",
		b.Until.UTC().Format("2006-01-02 15:04:05Z"), Short(b.Until.Sub(now)), b.ID)
}

func marked(m orphan.Mark, last janitor.Report, stopped *Finding, now time.Time) (Verdict, string) {
	found := fmt.Sprintf("the rule %s has found it an orphan for %s", m.Rule, Short(now.Sub(m.Since)))
	const unless = "unless it changes, or shows a sign of life (cleanup why KEY)"
	switch {
	case m.Reports:
		return Kept, fmt.Sprintf("kept: %s, and only reports: it does not say delete: true", found)
	case stopped != nil:
		return stopped.fate(found, unless)
	case last.Outcome == janitor.Held:
		return Kept, fmt.Sprintf("kept while the rule is held (%s; docs/runbook.md#why-a-rule-is-held): %s",
			join(last.Reason, last.Error), found)
	}
	return WillGo, fmt.Sprintf("will go when the rule's grace is over, %s: %s", unless, found)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

var mirrorKeys = []struct{ prefix, is string }{
	{"mitra:heartbeat:", "the last heartbeat of a mitra"},
	{"mitra:capacity:", "how many sessions a mitra has"},
	{"mitras:online", "the mitras who are online"},
	{"mitras:deactivated", "the mitras who may not work"},
	{"mitras:version", "the version that was applied of each mitra"},
	{"mitras:seeded", "the sign that the mirror is whole"},
	{"availability:", "a note that is recreated automatically"},
}

func (r *Reader) mirrored(ctx context.Context, id string, now time.Time) (string, error) {
	for _, k := range mirrorKeys {
		if !strings.HasPrefix(id, r.keys.Prefix+k.prefix) {
			continue
		}
		n, err := r.client.Exists(ctx, id).Result()
		if err != nil || n == 0 {
			return "", ignore(err)
		}
		return fmt.Sprintf("kept: it is %s, a part of availability's mirror of PostgreSQL; no sweep deletes it for "+
			"its age, and the next comparison corrects it", k.is), nil
	}
	p := r.client.Pipeline()
	version := p.HGet(ctx, r.keys.Prefix+"mitras:version", id)
	online := p.SIsMember(ctx, r.keys.Prefix+"mitras:online", id)
	revoked := p.SIsMember(ctx, r.keys.Prefix+"mitras:deactivated", id)
	beat := p.Get(ctx, r.keys.Prefix+"mitra:heartbeat:"+id)
	sessions := p.Get(ctx, r.keys.Prefix+"mitra:capacity:"+id)
	if err := exec(ctx, p, "the mirror"); err != nil || version.Err() != nil {
		return "", ignore(err)
	}
	state := "offline"
	if online.Val() {
		state = "online"
	}
	if revoked.Val() {
		state += ", deactivated"
	}
	last := "no heartbeat is known"
	if at, err := time.Parse(time.RFC3339, beat.Val()); err == nil {
		last = "its last heartbeat was " + Ago(now.Sub(at))
	}
	return fmt.Sprintf("kept: this mitra is %s in the mirror of PostgreSQL; %s; sessions: %s", state, last,
		or(sessions.Val(), "0")), nil
}

func ignore(err error) error {
	if Refused(err) || errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// Short formats a duration for people: 4.2s, 2m13s, 3h5m, 4d2h.
func Short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Short(-d)
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return trimZeros(d.Round(time.Second).String())
	case d < 24*time.Hour:
		return trimZeros(d.Round(time.Minute).String())
	}
	hours := int(d.Round(time.Hour).Hours())
	return strings.TrimSuffix(fmt.Sprintf("%dd%dh", hours/24, hours%24), "0h")
}

// span is for programs: Go's syntax, as precise as Short.
func span(d time.Duration) string {
	if d < 24*time.Hour {
		return Short(d)
	}
	return trimZeros(d.Round(time.Second).String())
}

func trimZeros(s string) string {
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Megabytes formats a number of bytes.
func Megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

// Ago formats an age.
func Ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return Short(d) + " ago"
}

// pseudo is the version that Go derives from a commit without a tag.
var pseudo = regexp.MustCompile(`^v\d+\.\d+\.\d+-(?:.*\.)?\d{14}-([0-9a-f]{8,})(\+.*)?$`)

// Version is short: of an untagged build it is the commit; + : with changes.
func Version(v string) string {
	m := pseudo.FindStringSubmatch(v)
	switch {
	case m == nil:
		return v
	case m[2] != "":
		return m[1][:8] + "+"
	}
	return m[1][:8]
}

// wrongType: such a key must not hide all the others.
func wrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Refused reports whether the server does not allow a command, or does not know it.
func Refused(err error) bool {
	return answered(err) && (redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown"))
}

// answered reports whether err is the server's own.
func answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !errors.Is(err, redis.Nil)
}

var otherReply = regexp.MustCompile(`redis: (?:can't parse (?:.* reply: |reply=)?|invalid reply: )(".*")`)

// refusals are what Redis, or the way to it, may answer instead of obeying: words of the error,
// what it means, and the cure. docs/redis.md has the same.
var refusals = []struct{ words, means, do string }{
	{"MISCONF", "Redis cannot save its snapshot, and refuses writes until it can",
		"Look at its disk and log; redis-cli CONFIG SET stop-writes-on-bgsave-error no lets it write meanwhile"},
	{"NOREPLICAS", "too few replicas of this Redis are connected, so it refuses writes",
		"Start its replicas, or lower min-replicas-to-write"},
	{"READONLY", "this Redis is a replica, and refuses writes",
		"Name the primary in REDIS_URL, or wait for the end of the failover"},
	{"OOM", fullRedis, "Give it memory, or trim telemetry"},
	{"LOADING", "Redis is still loading its data", "Wait: redis-cli INFO persistence shows for how long"},
	{"BUSY", "somebody's script or function blocks Redis",
		"redis-cli SCRIPT KILL, or FUNCTION KILL; then find who runs it"},
	{"MASTERDOWN", "this Redis is a replica that has lost its primary", "Start the primary, or promote a replica"},
	{"CLUSTERDOWN", "the Redis Cluster lacks a master, and refuses every key",
		"Start that master, or promote a replica of it; redis-cli --cluster check HOST:PORT names its slots"},
	{"WRONGPASS|NOAUTH", "Redis refuses this user or password",
		"Correct them in REDIS_URL, or REDIS_PASSWORD_FILE"},
	{"NOPERM|The user executing the script can't", "Redis' user lacks a right",
		"rollcall doctor, with that user, names each that is missing"},
	{"DENIED", "Redis is in protected mode, and takes clients of its own machine alone",
		"Give it a password (requirepass), or a user"},
	{"max number of clients", "Redis has as many clients as it takes (maxclients)",
		"redis-cli CONFIG SET maxclients 20000; redis-cli CLIENT LIST shows who leaks connections"},
	{"unknown command", "this Redis does not know a command that is needed",
		"Undo its renaming (rename-command); a managed service must offer it"},
	{"DB index is out of range", "this Redis has no database of that number", "Correct the end of REDIS_URL"},
	{"WRONGTYPE", "a key of the fleet is of another type", "rollcall doctor names it"},
	{"certificate has expired", "a certificate on the way to Redis has expired",
		"Renew that of Redis, its authority's (REDIS_TLS_CA_FILE), or REDIS_TLS_CERT_FILE"},
	{"x509:", "there is no TLS with Redis: its certificate is not accepted",
		"Look at rediss:// in REDIS_URL, and at REDIS_TLS_CA_FILE"},
	{"tls:", "there is no TLS with Redis", "Look at rediss:// in REDIS_URL, and at REDIS_TLS_CA_FILE"},
	{"EOF|broken pipe|connection reset", "Redis ends connections at once",
		"It may have as many clients as it takes (maxclients), be in protected mode, " +
			"want TLS (rediss://), or be no Redis"},
	{"connection refused", "nothing listens at Redis' address", "Start Redis, or correct REDIS_URL"},
	{"no such host", "the host of REDIS_URL has no address", "Correct REDIS_URL, or the DNS"},
	{"timeout|deadline exceeded", noAnswer,
		"Look whether it hangs, and at the network between; it may also want TLS, or no TLS"},
}

const (
	fullRedis = "Redis is full, and refuses writes"
	noAnswer  = "Redis does not answer in time"
)

// Cause explains an error of Redis: what it means, and the cure. Both are empty if it is not known.
func Cause(err error) (means, do string) {
	if err == nil {
		return "", ""
	}
	text := err.Error()
	if m := otherReply.FindStringSubmatch(text); m != nil {
		return "the server at REDIS_URL is no Redis: it answers " + m[1], "Correct host and port in REDIS_URL"
	}
	for _, r := range refusals {
		for word := range strings.SplitSeq(r.words, "|") {
			if strings.Contains(text, word) {
				return r.means, r.do
			}
		}
	}
	return "", ""
}

// explained returns a sentence, the cause first and the server's words after it, and the cure.
func explained(err error) (sentence, do string) {
	means, do := Cause(err)
	said := cause(err)
	if means == "" {
		return brief(said), ""
	}
	for _, end := range []string{". ", ", with args", ", otherwise "} { // some explain at length
		said, _, _ = strings.Cut(said, end)
	}
	return fmt.Sprintf("%s (%s)", means, said), do + "."
}

// Unanswered is the finding of a replica that cannot ask Redis.
func Unanswered(err error) Finding {
	return refusal("unanswered", "Redis cannot be asked: ", err)
}
